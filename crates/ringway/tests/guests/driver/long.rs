//! The long tests.
