//! Memory that is taken and given back while groups run.

use std::ops::Range;

/// A range of one arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub arena: usize,
    pub bytes: Range<usize>,
}

/// Arenas that grow as needed, each up to a capacity. The smallest free block that fits is taken.
pub(super) struct Arenas {
    capacity: usize,
    arenas: Vec<Arena>,
}

/// One arena: its size so far, and its free blocks by where they start, no two of which touch.
#[derive(Default)]
struct Arena {
    size: usize,
    free: Vec<Range<usize>>,
}

impl Arenas {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, arenas: vec![Arena::default()] }
    }

    /// Bytes of each arena.
    pub(super) fn sizes(&self) -> Vec<usize> {
        self.arenas.iter().map(|arena| arena.size).collect()
    }

    /// A block of `bytes`; `None` if that is more than an arena can have.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Block> {
        if bytes > self.capacity {
            return None;
        }
        let fits = self.arenas.iter().enumerate().flat_map(|(arena, a)| a.fitting(bytes).map(move |at| (arena, at)));
        if let Some((arena, at)) = fits.min_by_key(|&(arena, at)| self.arenas[arena].free[at].len()) {
            return Some(Block { arena, bytes: self.arenas[arena].carve(at, bytes) });
        }
        let room = |arena: &Arena| arena.tail() + bytes <= self.capacity;
        let arena = self.arenas.iter().position(room).unwrap_or_else(|| {
            self.arenas.push(Arena::default());
            self.arenas.len() - 1
        });
        Some(Block { arena, bytes: self.arenas[arena].grow(bytes) })
    }

    /// Gives a block back.
    pub(super) fn release(&mut self, block: &Block) {
        self.arenas[block.arena].release(block.bytes.clone());
    }
}

impl Arena {
    fn fitting(&self, bytes: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.free.len()).filter(move |&at| self.free[at].len() >= bytes)
    }

    fn carve(&mut self, at: usize, bytes: usize) -> Range<usize> {
        let start = self.free[at].start;
        if self.free[at].len() == bytes {
            self.free.remove(at);
        } else {
            self.free[at].start = start + bytes;
        }
        start..start + bytes
    }

    /// Where the memory that is in use ends.
    fn tail(&self) -> usize {
        self.free.last().filter(|last| last.end == self.size).map_or(self.size, |last| last.start)
    }

    fn grow(&mut self, bytes: usize) -> Range<usize> {
        let start = self.tail();
        if start < self.size {
            self.free.pop();
        }
        self.size = start + bytes;
        start..self.size
    }

    fn release(&mut self, mut range: Range<usize>) {
        let at = self.free.partition_point(|free| free.start < range.start);
        if self.free.get(at).is_some_and(|next| next.start == range.end) {
            range.end = self.free.remove(at).end;
        }
        if at > 0 && self.free[at - 1].end == range.start {
            self.free[at - 1].end = range.end;
        } else {
            self.free.insert(at, range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_block_that_fits_is_taken() {
        let mut arenas = Arenas::new(1000);
        let blocks: Vec<Block> = [100, 10, 50, 10, 70].map(|bytes| arenas.take(bytes)).into_iter().flatten().collect();
        for at in [0, 2, 4] {
            arenas.release(&blocks[at]);
        }
        assert_eq!(arenas.take(45), Some(Block { arena: 0, bytes: 110..155 }));
        assert_eq!(arenas.take(60), Some(Block { arena: 0, bytes: 170..230 }));
        assert_eq!(arenas.take(5), Some(Block { arena: 0, bytes: 155..160 }));
        assert_eq!(arenas.sizes(), [240]);
    }

    #[test]
    fn neighbours_merge_and_the_tail_grows() {
        let mut arenas = Arenas::new(1000);
        let blocks: Vec<Block> = [10, 20, 30].map(|bytes| arenas.take(bytes)).into_iter().flatten().collect();
        for at in [0, 2, 1] {
            arenas.release(&blocks[at]);
        }
        assert_eq!(arenas.take(60), Some(Block { arena: 0, bytes: 0..60 }));
        arenas.release(&Block { arena: 0, bytes: 0..60 });
        assert_eq!(arenas.take(80), Some(Block { arena: 0, bytes: 0..80 }));
        assert_eq!(arenas.sizes(), [80]);
    }

    #[test]
    fn a_full_arena_gets_a_sibling() {
        let mut arenas = Arenas::new(100);
        assert_eq!(arenas.take(60), Some(Block { arena: 0, bytes: 0..60 }));
        assert_eq!(arenas.take(60), Some(Block { arena: 1, bytes: 0..60 }));
        assert_eq!(arenas.take(40), Some(Block { arena: 0, bytes: 60..100 }));
        assert_eq!(arenas.take(101), None);
    }
}
