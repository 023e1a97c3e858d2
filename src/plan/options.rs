//! What a device allows a plan and what its user asks for.

use super::PlanError;
use crate::fusion::Matcher;

/// What a device allows a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes that one buffer may have and one kernel can reach at once.
    pub max_buffer_bytes: usize,
    /// Every slot starts at a multiple of so many bytes.
    pub alignment: usize,
    /// Storage buffers that one kernel can bind.
    pub max_bindings: usize,
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        if !self.alignment.is_power_of_two() {
            let expected = "a power of two".to_owned();
            return Err(PlanError::Limits { name: "alignment", given: self.alignment, expected });
        }
        if self.max_buffer_bytes < self.alignment {
            let expected = format!("at least the alignment, {}", self.alignment);
            return Err(PlanError::Limits { name: "max_buffer_bytes", given: self.max_buffer_bytes, expected });
        }
        Ok(())
    }
}

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanOptions {
    /// What may fuse.
    pub matcher: Matcher,
    /// Reorder to bring independent work together; otherwise the builder's order stands.
    pub optimize: bool,
    /// Gather groups that may run at the same time into one stage; otherwise every group is a stage.
    pub concurrency: bool,
    /// In how many parts commands are encoded.
    pub chunks: usize,
    /// Log what was decided.
    pub debug: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { matcher: Matcher::default(), optimize: true, concurrency: true, chunks: 1, debug: false }
    }
}

impl PlanOptions {
    /// The defaults, as changed by `WGFUSE_GRAPH_OPTIMIZE_DISABLE`, `WGFUSE_CONCURRENCY_DISABLE` and
    /// `WGFUSE_GRAPH_DEBUG`.
    pub fn from_env(matcher: Matcher) -> Self {
        let value = |name| std::env::var(name).ok();
        Self::parse(
            matcher,
            value("WGFUSE_GRAPH_OPTIMIZE_DISABLE").as_deref(),
            value("WGFUSE_CONCURRENCY_DISABLE").as_deref(),
            value("WGFUSE_GRAPH_DEBUG").as_deref(),
        )
    }

    /// The defaults, as changed by values of these variables. Each is a switch: set to anything but `0` it is on.
    pub fn parse(
        matcher: Matcher,
        optimize_disable: Option<&str>,
        concurrency_disable: Option<&str>,
        graph_debug: Option<&str>,
    ) -> Self {
        let on = |value: Option<&str>| value.is_some_and(|value| value.trim() != "0");
        Self {
            matcher,
            optimize: !on(optimize_disable),
            concurrency: !on(concurrency_disable),
            chunks: 1,
            debug: on(graph_debug),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches() {
        let parse = |a, b, c| PlanOptions::parse(Matcher::default(), a, b, c);
        assert_eq!(parse(None, None, None), PlanOptions::default());
        assert_eq!(parse(Some("0"), Some("0"), Some("0")), PlanOptions::default());
        assert!(!parse(Some("1"), None, None).optimize);
        assert!(!parse(None, Some(""), None).concurrency);
        assert!(parse(None, None, Some("1")).debug);
    }

    #[test]
    fn limits_must_make_sense() {
        let limits = Limits { max_buffer_bytes: 1 << 20, alignment: 256, max_bindings: 8 };
        assert_eq!(limits.check(), Ok(()));
        assert!(Limits { alignment: 0, ..limits }.check().is_err());
        assert!(Limits { alignment: 48, ..limits }.check().is_err());
        assert!(Limits { max_buffer_bytes: 255, ..limits }.check().is_err());
    }
}
