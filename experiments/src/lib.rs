//! Experiments: the papers' tables and figures, with their peers and plots.
