//! Parts of a plan that threads encode side by side.

use std::ops::Range;

/// `groups` cut into at most `parts` ranges of about equal size; none is empty, and none cuts through a group.
pub(super) fn chunks(groups: usize, parts: usize) -> Vec<Range<usize>> {
    let parts = parts.clamp(1, groups.max(1));
    let start = |part: usize| (groups as u128 * part as u128 / parts as u128) as usize;
    (0..parts).map(|part| start(part)..start(part + 1)).filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_in_one_chunk() {
        for groups in [0, 1, 2, 7, 64, 1000] {
            for parts in [0, 1, 2, 3, 8, 2000, usize::MAX] {
                let chunks = chunks(groups, parts);
                let covered: Vec<usize> = chunks.iter().cloned().flatten().collect();
                assert!(covered.into_iter().eq(0..groups), "{groups} groups in {parts} parts");
                assert_eq!(chunks.len(), parts.clamp(1, groups.max(1)).min(groups));
                let sizes = chunks.iter().map(ExactSizeIterator::len);
                assert!(sizes.clone().max().unwrap_or(0) <= sizes.min().unwrap_or(0) + 1);
            }
        }
    }
}
