//! The interface on `control.sock`: its JSON, and a blocking [`client`] for commands and libraries, which brings no runtime with it. The
//! server is in `ringway-daemon`; `/openapi.json` describes both.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`types::Status`] |
//! | `GET /v1/ports` | list of [`types::PortStatus`] |
//! | `POST /v1/ports` | adds a port: `{"name": NAME, KEY: VALUE...}` |
//! | `PATCH /v1/ports/{name}` | changes a port's settings: `{KEY: VALUE...}` |
//! | `DELETE /v1/ports/{name}` | removes a port |
//! | `POST /v1/ports/{name}/enable` | enables a port that is disabled or paused |
//! | `GET /v1/fdb?switch=NAME` | list of [`types::FdbEntry`] |
//! | `PUT /v1/buckets/{name}` | adds a bucket, or replaces its settings: `{KEY: VALUE...}` |
//! | `DELETE /v1/buckets/{name}` | removes a bucket |
//! | `PATCH /v1/switches/{name}` | changes a switch's settings: `{KEY: VALUE...}` |
//! | `GET /v1/ports/{name}/capture` | frames as pcapng, while they flow ([`capture`]) |
//! | `DELETE /v1/captures/{id}` | ends a capture: its answer is completed |
//! | `GET /v1/config` | [`config::ConfigStatus`] |
//! | `POST /v1/config/reset` | drops what commands changed of the configuration file |
//! | `POST /v1/reload` | reads the configuration file again |
//! | `GET /metrics` | the counters for Prometheus |
//!
//! A port's `{name}` is `NAME` if one port has that name, or `SWITCH:NAME`. A refused request is answered with
//! [`types::Refusal`].
//!
//! The modules stand on floors: each imports modules of lower floors only.
//!
//! ```text
//!  client       requests and their answers
//!  types        the status, changes and refusals, with the modules: capture config identity limits program switch traffic
//!  http         one request on a connection               paths    where the daemon's sockets are
//!  mistake      what is wrong in a request                name, port_ref, units    as users write them      patience
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod capture;
pub mod client;
pub mod config;
pub mod http;
pub mod identity;
pub mod limits;
mod mistake;
mod name;
pub mod paths;
mod patience;
mod port_ref;
pub mod program;
pub mod switch;
pub mod traffic;
pub mod types;
pub mod units;

pub use mistake::Mistake;
pub use name::{NAME_MAX, Name};
pub use patience::patience;
pub use port_ref::PortRef;
