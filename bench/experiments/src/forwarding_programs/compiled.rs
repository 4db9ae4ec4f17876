//! The examples that the experiment compares, compiled, and what its figures have in common.

use std::io;
use std::path::{Path, PathBuf};

use super::modules::{ACCESS_LIST, Example, Modules};
use super::rules;

/// Numbers of rules.
pub(super) const RULES: [usize; 3] = [10, 1000, 100_000];
pub(super) const EXPERIMENT: &str = "programs-forwarding";
pub(super) const SOURCE: &str = "VALE, sections 3.3 and 7";
/// Most bytes of `config`. What is longer is in a file.
const CONFIG_MAX: usize = 64 << 10;

/// The modules, or why there are none.
pub(super) struct Programs(Result<Modules, (io::ErrorKind, String)>);

impl Programs {
    pub(super) fn compile(ringway: &Path) -> Programs {
        Programs(Modules::new(ringway).map_err(|error| (error.kind(), error.to_string())))
    }

    /// Returns the value of `forwarding` for an example with this text.
    pub(super) fn forwarding(&self, example: &Example, config: &str) -> io::Result<String> {
        let module = self.module(example)?;
        let config = match config.len() {
            0..=CONFIG_MAX => format!("config = '{config}'"),
            _ => format!("config_file = '{}'", self.modules()?.write("config", config)?.display()),
        };
        Ok(format!("{{ program = '{}', {config} }}", module.display()))
    }

    /// Returns the value of `forwarding` for an access list.
    pub(super) fn access_list(&self, rules: usize) -> io::Result<String> {
        self.forwarding(&ACCESS_LIST, &rules::access_list(rules))
    }

    /// Compiles an example.
    pub(super) fn module(&self, example: &Example) -> io::Result<PathBuf> {
        self.modules()?.compile(example)
    }

    fn modules(&self) -> io::Result<&Modules> {
        self.0.as_ref().map_err(|(kind, why)| io::Error::new(*kind, why.as_str()))
    }
}
