//! `ringway extcap --install` and `--uninstall`: the program in one of Wireshark's extcap folders.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use ringway_commands::context::{Context, complain, refuse};
use ringway_commands::out;

/// Name of the program in an extcap folder. Under this name `ringway` runs `ringway extcap`.
pub const PROGRAM: &str = "ringway-extcap";

/// Second line of the scripts that are installed.
const MARK: &str = "# Written by \"ringway extcap --install\".";

/// Where to install.
#[derive(Debug)]
pub enum Place {
    /// The user's folder if Wireshark has one, or else the folder for all users.
    Either,
    User,
    System,
    Folder(PathBuf),
}

impl Place {
    /// The place that the options name.
    pub fn of(user: bool, system: bool, folder: Option<PathBuf>) -> Self {
        match folder {
            Some(folder) => Self::Folder(folder),
            None if user => Self::User,
            None if system => Self::System,
            None => Self::Either,
        }
    }

    /// Returns the folder.
    fn folder(&self) -> Result<PathBuf, String> {
        if let Self::Folder(folder) = self {
            return Ok(folder.clone());
        }
        let folders = Folders::ask();
        let none = match &folders {
            Some(_) => {
                "this Wireshark has no extcap folder of that kind (those of single users came with version 4.2): \
                 install for all users with --system, or name a folder with --dir DIR"
            }
            None => {
                "cannot ask tshark for the extcap folders: install tshark, or name the folder with --dir DIR \
                 (Wireshark shows its folders at Help, About, Folders)"
            }
        };
        let own = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/lib/wireshark/extcap"));
        let (personal, global) = match folders {
            Some(folders) => (folders.personal, folders.global),
            None => (own(), None),
        };
        let folder = match self {
            Self::User => personal,
            Self::System => global,
            _ => personal.or(global),
        };
        folder.ok_or_else(|| none.to_owned())
    }
}

/// The extcap folders of the installed Wireshark.
#[derive(Debug, Default, PartialEq)]
struct Folders {
    personal: Option<PathBuf>,
    global: Option<PathBuf>,
}

impl Folders {
    /// Asks tshark; none if there is no tshark.
    fn ask() -> Option<Self> {
        let said = Command::new("tshark").args(["-G", "folders"]).stdin(Stdio::null()).output().ok()?;
        said.status.success().then(|| Self::read(&String::from_utf8_lossy(&said.stdout)))
    }

    /// Reads lines like `Personal Extcap path:   /home/a/.local/lib/wireshark/extcap`. Before version 4.2 there is one folder,
    /// `Extcap path`.
    fn read(text: &str) -> Self {
        let mut folders = Self::default();
        for (label, path) in text.lines().filter_map(|line| line.split_once(':')) {
            let path = Some(PathBuf::from(path.trim())).filter(|path| path.is_absolute());
            match label.trim().to_ascii_lowercase().as_str() {
                "personal extcap path" => folders.personal = path,
                "global extcap path" | "extcap path" => folders.global = path,
                _ => {}
            }
        }
        folders
    }
}

/// Installs, or installs anew.
pub fn install(place: &Place, context: &Context) -> ExitCode {
    let (folder, file) = match place.folder() {
        Ok(folder) => (folder.clone(), folder.join(PROGRAM)),
        Err(what) => return refuse("extcap", &what),
    };
    match is_ours(&file) {
        Ok(Some(false)) => return refuse("extcap", &foreign(&file)),
        Ok(_) => {}
        Err(error) => return failed("read", &file, &error),
    }
    let own = match env::current_exe() {
        Ok(own) => own,
        Err(error) => {
            complain("extcap", &format!("cannot find out the path of this program: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let made = fs::create_dir_all(&folder).and_then(|()| remove_if_there(&file)).and_then(|()| {
        if context.is_default_dir {
            symlink(&own, &file)
        } else {
            script(&file, &own, &std::path::absolute(&context.runtime_dir)?)
        }
    });
    match made {
        Ok(()) => out::print(&format!("installed {}\n", file.display())),
        Err(error) => failed("install", &file, &error),
    }
}

/// Removes what [`install`] made.
pub fn uninstall(place: &Place) -> ExitCode {
    let file = match place.folder() {
        Ok(folder) => folder.join(PROGRAM),
        Err(what) => return refuse("extcap", &what),
    };
    match is_ours(&file) {
        Ok(None) => refuse("extcap", &format!("{} is not there", file.display())),
        Ok(Some(false)) => refuse("extcap", &foreign(&file)),
        Ok(Some(true)) => match fs::remove_file(&file) {
            Ok(()) => out::print(&format!("removed {}\n", file.display())),
            Err(error) => failed("remove", &file, &error),
        },
        Err(error) => failed("read", &file, &error),
    }
}

fn foreign(file: &Path) -> String {
    format!(
        "{} was not made by \"ringway extcap --install\": remove it, or name another folder with --dir DIR",
        file.display()
    )
}

fn failed(what: &str, file: &Path, error: &io::Error) -> ExitCode {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; run the command as root, or name another folder with --dir DIR"
        }
        _ => "",
    };
    complain("extcap", &format!("cannot {what} {}: {error}{advice}", file.display()));
    ExitCode::FAILURE
}

fn remove_if_there(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if `install` made the file: a link to a program named like this one, or a script with the mark; none if there is no
/// such file.
fn is_ours(file: &Path) -> io::Result<Option<bool>> {
    let meta = match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        meta => meta?,
    };
    if meta.is_symlink() {
        let to = fs::read_link(file)?;
        let is_own = env::current_exe().is_ok_and(|own| own == to);
        return Ok(Some(is_own || to.file_name().is_some_and(|name| name == "ringway")));
    }
    if !meta.is_file() || meta.len() > 65_536 {
        return Ok(Some(false));
    }
    let text = fs::read(file)?;
    Ok(Some(text.split(|byte| *byte == b'\n').nth(1) == Some(MARK.as_bytes())))
}

/// Writes a script that runs `own` with a runtime directory.
fn script(file: &Path, own: &Path, runtime_dir: &Path) -> io::Result<()> {
    let text =
        format!("#!/bin/sh\n{MARK}\nexec {} --runtime-dir {} extcap \"$@\"\n", quoted(own)?, quoted(runtime_dir)?);
    OpenOptions::new().write(true).create_new(true).mode(0o755).open(file)?.write_all(text.as_bytes())
}

/// A word of the shell.
fn quoted(path: &Path) -> io::Result<String> {
    let text = path.to_str().ok_or_else(|| io::Error::other(format!("{path:?} is not UTF-8")))?;
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_are_read_from_old_and_new_versions_of_wireshark() {
        let old = "Temp:                \t/tmp\nExtcap path:         \t/usr/lib/wireshark/extcap\n";
        assert_eq!(Folders::read(old), Folders { personal: None, global: Some("/usr/lib/wireshark/extcap".into()) });
        let new = "Personal Extcap path:\t/home/a b/.local/lib/wireshark/extcap\nGlobal Extcap path:\t/usr/lib/wireshark/extcap\n";
        assert_eq!(
            Folders::read(new),
            Folders {
                personal: Some("/home/a b/.local/lib/wireshark/extcap".into()),
                global: Some("/usr/lib/wireshark/extcap".into())
            }
        );
        assert_eq!(Folders::read("Extcap path:\n"), Folders::default());
    }

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        let path = "/tmp/it's $HOME `here`";
        let said = Command::new("sh")
            .arg("-c")
            .arg(format!("printf %s {}", quoted(Path::new(path)).unwrap()))
            .output()
            .unwrap();
        assert_eq!(said.stdout, path.as_bytes());
    }
}
