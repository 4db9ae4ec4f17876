//! One file per subcommand, each with its `Args` and `run`. `gen` and `lwep` are in `ringway-commands`.

pub mod bucket;
pub mod capture;
pub mod completions;
pub mod config;
pub mod exec;
pub mod extcap;
pub mod fdb;
pub mod grants;
mod keys;
pub mod lab;
pub mod port;
pub mod program;
pub mod reload;
pub mod run;
pub mod status;
pub mod switch;
pub mod top;
pub mod upgrade;
pub mod words;
