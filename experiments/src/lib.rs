//! Experiments: the papers' tables and figures, with their peers and plots.

pub mod anchor;
pub mod child;
pub mod machine;
pub mod placement;
pub mod plot;
pub mod report;
pub mod stats;
pub mod trial;
