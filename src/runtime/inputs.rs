//! What a batch of one sequence puts into a graph's inputs.

use super::Outputs;
use crate::model::InputRole;
use half::f16;

/// A batch of one sequence: tokens that follow `n_past` others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    pub tokens: &'a [i32],
    pub n_past: usize,
    pub n_kv: usize,
    pub outputs: Outputs,
}

impl Batch<'_> {
    /// How many tokens' logits are wanted.
    pub(super) fn n_outputs(&self) -> usize {
        self.outputs.count(self.tokens.len())
    }

    /// Writes the bytes of an input over `bytes`.
    pub(super) fn fill(&self, role: InputRole, bytes: &mut Vec<u8>) {
        bytes.clear();
        let positions = self.n_past..self.n_past + self.tokens.len();
        match role {
            InputRole::Tokens => bytes.extend_from_slice(bytemuck::cast_slice(self.tokens)),
            InputRole::Positions => bytes.extend(positions.flat_map(|position| (position as i32).to_le_bytes())),
            // A sequence that is alone in the cache has the row of its position, in layers with a window too.
            InputRole::KeyRows { window: _ } | InputRole::ValueRows { window: _ } => {
                bytes.extend(positions.flat_map(|position| (position as i64).to_le_bytes()));
            }
            InputRole::Mask { window } => {
                for position in positions {
                    let first = window.map_or(0, |window| (position + 1).saturating_sub(window as usize));
                    let seen = first..=position;
                    let visible = |row| if seen.contains(&row) { f16::ZERO } else { f16::NEG_INFINITY };
                    bytes.extend((0..self.n_kv).flat_map(|row| visible(row).to_le_bytes()));
                }
            }
            InputRole::OutIds => {
                let first = self.tokens.len() - self.n_outputs();
                bytes.extend((first..self.tokens.len()).flat_map(|token| (token as i32).to_le_bytes()));
            }
            InputRole::StateCopy => bytes.extend_from_slice(&0i32.to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(role: InputRole, outputs: Outputs) -> Vec<u8> {
        let batch = Batch { tokens: &[7, 8, 9], n_past: 2, n_kv: 8, outputs };
        let mut bytes = vec![1];
        batch.fill(role, &mut bytes);
        bytes
    }

    #[test]
    fn positions_and_rows_follow_the_past() {
        let i32s = |values: &[i32]| bytemuck::cast_slice(values).to_vec();
        assert_eq!(filled(InputRole::Tokens, Outputs::All), i32s(&[7, 8, 9]));
        assert_eq!(filled(InputRole::Positions, Outputs::All), i32s(&[2, 3, 4]));
        assert_eq!(filled(InputRole::OutIds, Outputs::All), i32s(&[0, 1, 2]));
        assert_eq!(filled(InputRole::OutIds, Outputs::Last), i32s(&[2]));
        let rows: Vec<u8> = [2i64, 3, 4].iter().flat_map(|row| row.to_le_bytes()).collect();
        assert_eq!(filled(InputRole::KeyRows { window: None }, Outputs::All), rows);
    }

    #[test]
    fn tokens_see_themselves_and_what_came_before_within_the_window() {
        let seen = |window| -> Vec<String> {
            let mask = filled(InputRole::Mask { window }, Outputs::All);
            let row = |row: &[u8]| row.chunks(2).map(|bits| if bits == [0, 0] { 'x' } else { '.' }).collect();
            mask.chunks(16).map(row).collect()
        };
        assert_eq!(seen(None), ["xxx.....", "xxxx....", "xxxxx..."]);
        assert_eq!(seen(Some(2)), [".xx.....", "..xx....", "...xx..."]);
    }
}
