//! What tests of ports in whole switches share. Beside it are the tests across kinds (`tests`), and the programs that count the
//! instructions of a pass (`examples`).
#![forbid(unsafe_code)]

#[allow(missing_docs, clippy::new_without_default, reason = "helpers of tests")]
pub mod support;

#[allow(missing_docs, clippy::new_without_default, reason = "helpers of tests")]
pub mod vhost_user;
