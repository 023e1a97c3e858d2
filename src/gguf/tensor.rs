//! Descriptions of tensors and the rules that they follow.

use std::collections::HashMap;

use super::Error;
use crate::graph::DType;

/// Dimensions that a tensor has at most.
pub const MAX_DIMS: usize = 4;

/// The longest name of a tensor: ggml keeps names in 64 bytes that end with a zero.
pub const MAX_NAME_BYTES: usize = 63;

/// The element type that has ggml's number `id`.
pub(super) fn type_from_id(id: u32) -> Option<DType> {
    DType::ALL.into_iter().find(|dtype| u32::from(dtype.id()) == id)
}

/// Where a tensor's bytes are and how they are shaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, unique in its file.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
    /// The shape, innermost dimension first; 1 beyond `n_dims`.
    pub ne: [u64; MAX_DIMS],
    /// Dimensions that the file states.
    pub n_dims: usize,
    /// Where the tensor's bytes start in the file's data section.
    pub offset: u64,
    /// How many bytes the tensor takes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Describes a tensor whose bytes are not placed yet.
    pub(super) fn new(name: &str, dtype: DType, dims: &[u64]) -> Result<Self, Error> {
        let mut ne = [1; MAX_DIMS];
        ne.get_mut(..dims.len())
            .ok_or_else(|| Error::Dimensions { tensor: name.to_owned(), found: dims.len() as u64 })?
            .copy_from_slice(dims);
        let bytes = byte_size(dtype, ne).ok_or_else(|| Error::Shape { tensor: name.to_owned(), dtype, ne })?;
        Ok(Self { name: name.to_owned(), dtype, ne, n_dims: dims.len(), offset: 0, bytes })
    }

    /// The dimensions that the file states, innermost first.
    pub fn dims(&self) -> &[u64] {
        self.ne.get(..self.n_dims).unwrap_or(&self.ne)
    }
}

/// Bytes that a tensor takes.
///
/// A zero dimension makes a tensor empty, but must not hide dimensions that cannot be multiplied:
/// strides are products of them too. So the product is taken over the others first.
fn byte_size(dtype: DType, ne: [u64; MAX_DIMS]) -> Option<u64> {
    let [row, outer @ ..] = ne;
    let row = if row == 0 { dtype.block_size() } else { usize::try_from(row).ok()? };
    let row_bytes = u64::try_from(dtype.row_bytes(row)?).ok()?;
    let bytes = outer.into_iter().map(|n| n.max(1)).try_fold(row_bytes, u64::checked_mul)?;
    i64::try_from(bytes).ok()?;
    Some(if ne.contains(&0) { 0 } else { bytes })
}

/// Tensors in the order of the file, found by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Tensors {
    infos: Vec<TensorInfo>,
    positions: HashMap<String, usize>,
}

impl Tensors {
    /// Adds a tensor after the others, described only once its name is known to be sound, so that
    /// errors about the rest can show the name.
    pub(super) fn insert_with(
        &mut self,
        name: &str,
        describe: impl FnOnce() -> Result<TensorInfo, Error>,
    ) -> Result<(), Error> {
        let index = self.infos.len();
        if name.is_empty() {
            return Err(Error::EmptyName { index });
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::NameLength { index, length: name.len() });
        }
        if self.positions.contains_key(name) {
            return Err(Error::DuplicateTensor { tensor: name.to_owned() });
        }
        self.infos.push(describe()?);
        self.positions.insert(name.to_owned(), index);
        Ok(())
    }

    pub(super) fn as_slice(&self) -> &[TensorInfo] {
        &self.infos
    }

    pub(super) fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.infos.get(*self.positions.get(name)?)
    }

    /// Checks that each tensor starts aligned and ends within a data section of `available` bytes,
    /// and that no two share any of them.
    pub(super) fn check_places(&self, alignment: u32, available: u64) -> Result<(), Error> {
        let mut places = Vec::new();
        for info in &self.infos {
            let TensorInfo { ref name, offset, bytes, .. } = *info;
            if !offset.is_multiple_of(u64::from(alignment)) {
                return Err(Error::Unaligned { tensor: name.clone(), offset, alignment });
            }
            // An empty tensor after the last one that has bytes starts where that one's padding
            // ends, and a file may end without that padding.
            let end_limit = if bytes == 0 { available.next_multiple_of(alignment.into()) } else { available };
            match offset.checked_add(bytes) {
                Some(end) if end <= end_limit => places.push((offset, end, name)),
                Some(_) | None => return Err(Error::PastEnd { tensor: name.clone(), offset, bytes, available }),
            }
        }
        places.retain(|&(start, end, _)| start < end);
        places.sort_unstable();
        for pair in places.windows(2) {
            if let &[(_, end, first), (start, _, second)] = pair
                && start < end
            {
                return Err(Error::Overlap { first: first.clone(), second: second.clone() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::BlockFormat;

    #[test]
    fn type_numbers_are_ggmls_and_lead_back() {
        for dtype in DType::ALL {
            assert_eq!(type_from_id(dtype.id().into()), Some(dtype));
        }
        // One that ggml has dropped, one of its own intermediates, and one it does not have yet.
        assert_eq!([4, 15, 200].map(type_from_id), [None; 3]);
    }

    #[test]
    fn byte_sizes() {
        assert_eq!(byte_size(DType::F32, [3, 5, 1, 1]), Some(60));
        assert_eq!(byte_size(DType::BF16, [3, 5, 2, 1]), Some(60));
        assert_eq!(byte_size(DType::I64, [1, 1, 1, 1]), Some(8));
        assert_eq!(byte_size(BlockFormat::Q4_0.into(), [64, 3, 1, 1]), Some(108));
        assert_eq!(byte_size(BlockFormat::Q4_0.into(), [33, 3, 1, 1]), None);
        assert_eq!(byte_size(BlockFormat::Q6K.into(), [0, 3, 1, 1]), Some(0));
    }

    #[test]
    fn a_zero_dimension_empties_a_tensor_without_hiding_the_others() {
        for position in 0..MAX_DIMS {
            let mut ne = [7; MAX_DIMS];
            ne[position] = 0;
            assert_eq!(byte_size(DType::F32, ne), Some(0));
        }
        assert_eq!(byte_size(DType::F32, [0, 1 << 40, 1 << 40, 1]), None);
        assert_eq!(byte_size(DType::F32, [1 << 62, 0, 1, 1]), None);
        assert_eq!(byte_size(DType::F16, [u64::MAX, 0, 1, 1]), None);
    }
}
