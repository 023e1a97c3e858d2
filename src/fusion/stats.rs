//! How often each row of the table ran on a device.

use super::{DebugLevel, Fusion, FusionConfig, Matcher, TABLE};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What a device knows about fusion: which rows may match, and how often each ran. Its contexts share it.
#[derive(Debug)]
pub struct FusionState {
    config: FusionConfig,
    enabled: AtomicBool,
    collecting: AtomicBool,
    counters: [AtomicU64; TABLE.len()],
}

impl FusionState {
    /// Fusion as configured; statistics are collected from the start if they are to be printed.
    pub fn new(config: FusionConfig) -> Self {
        Self {
            config,
            enabled: AtomicBool::new(true),
            collecting: AtomicBool::new(config.debug >= DebugLevel::Statistics),
            counters: [const { AtomicU64::new(0) }; TABLE.len()],
        }
    }

    /// The rows that may match while fusion is not switched off.
    pub const fn configured(&self) -> Matcher {
        self.config.matcher
    }

    /// The rows that plans for this device may use now.
    pub fn matcher(&self) -> Matcher {
        self.allowed(self.config.matcher)
    }

    /// Those of the rows that plans for this device may use now.
    pub fn allowed(&self, rows: Matcher) -> Matcher {
        if self.enabled.load(Relaxed) { rows } else { Matcher::off() }
    }

    /// Turns all fusion off, or back to what was configured, from the next graph on that a context prepares.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Relaxed);
    }

    /// Starts collecting statistics, from zero.
    pub fn stats_init(&self) {
        self.stats_reset();
        self.collecting.store(true, Relaxed);
    }

    /// Sets every counter to zero.
    pub fn stats_reset(&self) {
        self.counters.iter().for_each(|counter| counter.store(0, Relaxed));
    }

    /// Whether statistics are being collected; commands are then encoded by one thread, so that they are exact.
    pub fn is_collecting(&self) -> bool {
        self.collecting.load(Relaxed)
    }

    /// The label of every row and how often it ran, in the order of the table.
    pub fn stats(&self) -> Vec<(String, u64)> {
        let counts = self.counters.iter().map(|counter| counter.load(Relaxed));
        TABLE.iter().map(Fusion::label).zip(counts).collect()
    }

    /// Counts one run of fused groups, each given by its row.
    pub fn record(&self, rows: impl IntoIterator<Item = &'static Fusion>) {
        if !self.is_collecting() {
            return;
        }
        for row in rows {
            if let Some(counter) = row.index().and_then(|index| self.counters.get(index)) {
                counter.fetch_add(1, Relaxed);
            }
            if self.config.debug >= DebugLevel::Groups {
                eprintln!("wgfuse: fused {} ({})", row.label(), row.id.name());
            }
        }
    }

    /// A context's share in the statistics.
    pub fn context(self: &Arc<Self>) -> FusionContext {
        FusionContext { state: Arc::clone(self) }
    }
}

impl fmt::Display for FusionState {
    /// The rows that ran, one a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats()
            .iter()
            .filter(|(_, count)| *count > 0)
            .try_for_each(|(label, count)| writeln!(f, "{label} {count}"))
    }
}

/// Held by a context: prints the device's statistics when it is dropped, if they were asked for.
#[derive(Debug)]
pub struct FusionContext {
    state: Arc<FusionState>,
}

impl FusionContext {
    /// The device's fusion.
    pub const fn state(&self) -> &Arc<FusionState> {
        &self.state
    }
}

impl Drop for FusionContext {
    fn drop(&mut self) {
        if self.state.config.debug >= DebugLevel::Statistics {
            eprint!("wgfuse: fusions so far\n{}", self.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::FusionSet;

    fn count(state: &FusionState, label: &str) -> u64 {
        state.stats().into_iter().find(|(l, _)| l == label).map_or(u64::MAX, |(_, count)| count)
    }

    #[test]
    fn counts_while_collecting() {
        let state = FusionState::new(FusionConfig::default());
        state.record([&TABLE[0]]);
        assert!(!state.is_collecting());
        assert_eq!(count(&state, "NORM+MUL"), 0, "not collecting yet");
        state.stats_init();
        state.record([&TABLE[0], &TABLE[11], &TABLE[0]]);
        assert_eq!((count(&state, "NORM+MUL"), count(&state, "GATED_DELTA_NET+CPY")), (2, 1));
        assert_eq!(state.to_string(), "NORM+MUL 2\nGATED_DELTA_NET+CPY 1\n");
        state.stats_reset();
        assert!(state.is_collecting());
        assert_eq!(state.stats().iter().map(|(_, count)| count).sum::<u64>(), 0);
    }

    #[test]
    fn contexts_share_the_counters_of_their_device() {
        let state = Arc::new(FusionState::new(FusionConfig::default()));
        let contexts = [state.context(), state.context()];
        state.stats_init();
        std::thread::scope(|scope| {
            for context in &contexts {
                scope.spawn(|| (0..1000).for_each(|_| context.state().record([&TABLE[1]])));
            }
        });
        assert_eq!(count(&state, "RMS_NORM+MUL"), 2000);
    }

    #[test]
    fn off_and_on_again() {
        let state = FusionState::new(FusionConfig::parse(FusionSet::Published12, Some("Snake"), Some("1")));
        let configured = state.matcher();
        assert!(state.is_collecting());
        state.set_enabled(false);
        assert!(state.matcher().is_off());
        state.set_enabled(true);
        assert_eq!(state.matcher(), configured);
    }
}
