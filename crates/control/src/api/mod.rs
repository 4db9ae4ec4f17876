//! What the daemon says and takes on `control.sock`: HTTP with JSON, described by `/openapi.json`.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`types::Status`] |
//! | `GET /v1/ports` | list of [`types::PortStatus`] |
//! | `POST /v1/ports` | a port comes: `{"name": NAME, KEY: VALUE...}` |
//! | `PATCH /v1/ports/{name}` | a port's settings change: `{KEY: VALUE...}` |
//! | `DELETE /v1/ports/{name}` | a port goes |
//! | `POST /v1/ports/{name}/enable` | a port that is disabled or paused works again |
//! | `GET /v1/fdb?switch=NAME` | list of [`types::FdbEntry`] |
//! | `PUT /v1/buckets/{name}` | a bucket comes, or has these settings from now on: `{KEY: VALUE...}` |
//! | `DELETE /v1/buckets/{name}` | a bucket goes |
//! | `PATCH /v1/switches/{name}` | a switch's settings change: `{KEY: VALUE...}` |
//! | `GET /v1/ports/{name}/capture` | frames as pcapng, while they flow ([`capture`]) |
//! | `DELETE /v1/captures/{id}` | a capture ends: its answer is completed |
//! | `POST /v1/reload` | the configuration file is read again |
//! | `GET /metrics` | the same counters for Prometheus |
//!
//! A port's `{name}` is `NAME` where one port has it, or `SWITCH:NAME`. A request that is refused is answered with
//! [`types::Refusal`].

pub mod capture;
pub mod features;
pub mod identity;
pub mod limits;
pub mod metrics;
pub mod routes;
pub mod schema;
pub mod server;
pub mod switch;
pub mod types;
