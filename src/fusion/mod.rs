//! What fuses: the table of fusable subgraphs and who consults it.

mod table;

pub use table::{Fusion, FusionId, FusionSet, TABLE};
