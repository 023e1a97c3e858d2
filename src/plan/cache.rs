//! Plans, and what was made of them, by the signature of their graph.

use super::{Leaves, Limits, PlanOptions, Signature};
use crate::graph::Graph;

/// Remembers a value for each of the last few distinct graphs.
#[derive(Debug)]
pub struct PlanCache<T> {
    capacity: usize,
    /// The most recently used first. Comparing signatures one by one beats hashing them: they are long, and the one
    /// looked for is nearly always the first or second.
    entries: Vec<Entry<T>>,
    signature: Signature,
    hits: u64,
    misses: u64,
}

#[derive(Debug)]
struct Entry<T> {
    key: Box<[u8]>,
    value: T,
}

impl<T> PlanCache<T> {
    /// A cache of at most `capacity` values, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { capacity, entries: Vec::new(), signature: Signature::default(), hits: 0, misses: 0 }
    }

    /// The value for a graph like this one, made if there is none; then the value that was unused for longest makes
    /// room. Finding a value allocates nothing.
    ///
    /// # Errors
    /// Whatever `make` returns; nothing is remembered then.
    pub fn get_or_make<E>(
        &mut self,
        graph: &Graph,
        leaves: &Leaves,
        limits: &Limits,
        options: &PlanOptions,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&mut T, E> {
        self.signature.describe(graph, leaves, limits, options);
        let key = self.signature.bytes();
        if let Some(at) = self.entries.iter().position(|entry| *entry.key == *key) {
            self.hits += 1;
            self.entries[..=at].rotate_right(1);
        } else {
            self.misses += 1;
            let entry = Entry { key: key.into(), value: make()? };
            self.entries.truncate(self.capacity - 1);
            self.entries.insert(0, entry);
        }
        Ok(&mut self.entries[0].value)
    }

    /// How often a value was found.
    pub const fn hits(&self) -> u64 {
        self.hits
    }

    /// How often one had to be made.
    pub const fn misses(&self) -> u64 {
        self.misses
    }

    /// How many values are remembered.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets every value.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
