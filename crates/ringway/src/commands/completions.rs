//! `ringway completions`: what shells need to complete commands and keys.

use std::process::ExitCode;

use clap_complete::Shell;
use ringway_commands::out;
use ringway_config::KeyScope;

use super::keys::{self, Operation};

/// Print what a shell needs to complete commands and keys
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway completions bash > /etc/bash_completion.d/ringway
  ringway completions zsh > /usr/local/share/zsh/site-functions/_ringway
  ringway completions fish > ~/.config/fish/completions/ringway.fish")]
pub struct Args {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Suppresses the space that bash adds to a completed word: a key's value follows directly.
const BASH_KEYS: &str = "
_ringway_keys() {
    _ringway \"$@\"
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -F _ringway_keys -o nosort -o bashdefault -o default ringway 2>/dev/null ||
    complete -F _ringway_keys -o bashdefault -o default ringway
";

/// Runs the command for the whole command line that `command` describes.
pub fn run(args: &Args, mut command: clap::Command) -> ExitCode {
    let (shell, more) = match args.shell.as_str() {
        "zsh" => (Shell::Zsh, String::new()),
        "fish" => (Shell::Fish, fish_keys()),
        _ => (Shell::Bash, BASH_KEYS.to_owned()),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "ringway", &mut script);
    out::print(&(String::from_utf8_lossy(&script).into_owned() + &more))
}

/// Returns the keys for fish, for which clap_complete writes options and commands only.
fn fish_keys() -> String {
    let commands = [
        ("port", "add", KeyScope::Port, Operation::Create),
        ("port", "set", KeyScope::Port, Operation::Update),
        ("bucket", "set", KeyScope::Bucket, Operation::Create),
        ("switch", "set", KeyScope::Switch, Operation::Update),
    ];
    let mut lines = String::new();
    for (command, verb, scope, given) in commands {
        let when = format!("__fish_seen_subcommand_from {command}; and __fish_seen_subcommand_from {verb}");
        for (word, about) in keys::words(scope, given) {
            let about = about.replace('\\', "\\\\").replace('\'', "\\'");
            lines.push_str(&format!("complete -c ringway -n \"{when}\" -f -a '{word}' -d '{about}'\n"));
        }
    }
    lines
}
