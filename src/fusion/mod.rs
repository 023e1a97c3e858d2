//! What fuses: the table of fusable subgraphs and who consults it.
//!
//! The planner asks the same [`Matcher`] twice: in [`Mode::Structural`] to keep fusable nodes together while it reorders
//! a graph, and in [`Mode::Full`] to form the groups that devices execute. A refusal is a value, a [`Decline`].

mod checks;
mod config;
mod decline;
mod matcher;
mod pack;
mod sequence;
mod stats;
mod table;

pub use checks::{Candidate, Check};
pub use config::{DebugLevel, FusionConfig};
pub use decline::Decline;
pub use matcher::{Found, Matcher};
pub use pack::{MAX_PACK, Pack, pack};
pub use sequence::{Mode, Sequence};
pub use stats::{FusionContext, FusionState};
pub use table::{Fusion, FusionId, FusionSet, TABLE, UnknownSet};
