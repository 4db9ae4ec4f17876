//! The server on `control.sock`: HTTP with JSON, described by `/openapi.json`. The JSON itself is in `ringway_api`.
//!
//! - [`server`]: connections, with a limit on everything.
//! - [`routes`]: each request and its handler.
//! - `capture`: frames as pcapng, while they flow.
//! - [`metrics`]: the status for Prometheus.
//! - [`schema`]: the keys of ports, buckets and switches in `/openapi.json`.

mod capture;
pub mod metrics;
pub mod routes;
pub mod schema;
pub mod server;
