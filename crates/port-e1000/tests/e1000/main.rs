//! e1000 ports, driven over their sockets by the traffic crate's driver.

mod counts;
mod modes;
mod scene;
