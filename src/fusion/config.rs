//! What the environment says about fusion.

use super::{FusionId, FusionSet, Matcher, TABLE};

/// How much fusion tells about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DebugLevel {
    /// Nothing.
    #[default]
    Silent,
    /// Statistics, printed when a context is dropped.
    Statistics,
    /// Each fused group as well.
    Groups,
}

/// What may fuse on a device, and what it tells about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FusionConfig {
    /// The rows that may match.
    pub matcher: Matcher,
    /// How much is printed.
    pub debug: DebugLevel,
}

impl FusionConfig {
    /// Reads `WGFUSE_FUSION_DISABLE` and `WGFUSE_FUSION_DEBUG`.
    pub fn from_env(set: FusionSet) -> Self {
        let disable = std::env::var("WGFUSE_FUSION_DISABLE").ok();
        let debug = std::env::var("WGFUSE_FUSION_DEBUG").ok();
        Self::parse(set, disable.as_deref(), debug.as_deref())
    }

    /// The configuration that values of `WGFUSE_FUSION_DISABLE` and `WGFUSE_FUSION_DEBUG` ask for.
    ///
    /// `disable`: unset, everything fuses; empty or `1`, nothing; else the ids in this comma-separated list do not.
    /// `debug`: `1` for statistics, `2` for each fused group as well. What is not understood is logged and ignored.
    pub fn parse(set: FusionSet, disable: Option<&str>, debug: Option<&str>) -> Self {
        let all = Matcher::new(set);
        let matcher = match disable.map(str::trim) {
            None => all,
            Some("" | "1") => Matcher::off(),
            Some(list) => list.split(',').map(str::trim).fold(all, without_named),
        };
        let debug = match debug.map(str::trim) {
            None | Some("" | "0") => DebugLevel::Silent,
            Some("1") => DebugLevel::Statistics,
            Some("2") => DebugLevel::Groups,
            Some(other) => {
                log::warn!("WGFUSE_FUSION_DEBUG is `{other}`, expected 0, 1 or 2; ignored");
                DebugLevel::Silent
            }
        };
        Self { matcher, debug }
    }
}

fn without_named(matcher: Matcher, name: &str) -> Matcher {
    match TABLE.iter().map(|row| row.id).find(|id| id.name() == name) {
        Some(id) => matcher.without(id),
        None if name.is_empty() => matcher,
        None => {
            log::warn!("WGFUSE_FUSION_DISABLE names `{name}`, expected some of {}; ignored", known_names());
            matcher
        }
    }
}

fn known_names() -> String {
    let mut ids: Vec<FusionId> = TABLE.iter().map(|row| row.id).collect();
    ids.dedup();
    ids.into_iter().map(FusionId::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(disable: Option<&str>) -> Matcher {
        FusionConfig::parse(FusionSet::All, disable, None).matcher
    }

    #[test]
    fn disabling() {
        let all = Matcher::new(FusionSet::All);
        assert_eq!(parse(None), all);
        assert!(parse(Some("")).is_off() && parse(Some("1")).is_off() && parse(Some(" ")).is_off());
        let some = all.without(FusionId::NormMul).without(FusionId::Snake);
        assert_eq!(parse(Some("NormMul,Snake")), some);
        assert_eq!(parse(Some(" Snake , NormMul,")), some);
        assert_eq!(parse(Some("NormMul,normmul,Nothing")), all.without(FusionId::NormMul));
    }

    #[test]
    fn debugging() {
        let level = |debug| FusionConfig::parse(FusionSet::All, None, debug).debug;
        assert_eq!(level(None), DebugLevel::Silent);
        assert_eq!(level(Some("0")), DebugLevel::Silent);
        assert_eq!(level(Some("1")), DebugLevel::Statistics);
        assert_eq!(level(Some("2")), DebugLevel::Groups);
        assert_eq!(level(Some("much")), DebugLevel::Silent);
    }

    #[test]
    fn every_id_is_known() {
        assert_eq!(known_names(), "NormMul, NormMulAdd, AddChain, Snake, GdnCache");
    }
}
