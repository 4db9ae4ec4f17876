//! Tests of offloads.

mod coalesce_tests;
mod finish_tests;
mod header_tests;
pub(crate) mod hostile;
mod hostile_tests;
pub(crate) mod reading;
pub(crate) mod samples;
mod tunnel_tests;

use crate::frame::headers::on_a_wire;
use crate::{Accepts, Gso, Offload};
