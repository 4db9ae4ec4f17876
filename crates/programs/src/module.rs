//! Judging and compiling a module.

use std::sync::Arc;

use wasmtime::{Engine, ExternType, FuncType, ImportType, InstancePre, Linker, Module as Compiled, ValType};

use crate::fault::Fault;
use crate::host;
use crate::limits::{MEMORY_MAX, MODULE_MAX, TABLE_MAX};
use crate::state::State;

/// Bytes of a page of memory.
const PAGE: u64 = 65_536;
/// The first bytes of a module.
const MAGIC: [u8; 4] = *b"\0asm";
/// Longest name of a module, and longest reason, in messages: in characters.
const LONGEST_NAME: usize = 64;
const LONGEST_REASON: usize = 512;
/// Names that begin so belong to the interface.
const PREFIX: &str = "ringway_";

/// Why a module or its start is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unacceptable {
    /// The file is no module, or one that cannot be compiled.
    #[error("{0}")]
    Module(String),
    /// The module lacks an export, has one of another type or one too many.
    #[error("{0}")]
    Export(String),
    /// The module imports what there is not.
    #[error("{0}")]
    Import(String),
    /// The module wants too much memory.
    #[error("{0}")]
    Memory(String),
    /// The module was written for another interface.
    #[error("the module is for version {0} of the interface: this Ringway has version 1")]
    Interface(i32),
    /// The module failed while it started.
    #[error("{export} failed: {fault}")]
    Failed {
        /// The export that was called.
        export: &'static str,
        /// What happened.
        fault: Fault,
    },
    /// The program refuses to start, or to take over a state.
    #[error("{0}")]
    Refused(String),
    /// The system cannot do it.
    #[error("{0}")]
    System(String),
}

/// An export of the interface: its name, whether it must be there, and its type.
struct Export {
    name: &'static str,
    must: bool,
    parameters: usize,
    results: usize,
}

const EXPORTS: [Export; 9] = [
    Export { name: "ringway_interface", must: true, parameters: 0, results: 1 },
    Export { name: "ringway_start", must: true, parameters: 0, results: 1 },
    Export { name: "ringway_frames", must: true, parameters: 2, results: 0 },
    Export { name: "ringway_ports", must: false, parameters: 0, results: 0 },
    Export { name: "ringway_timer", must: false, parameters: 0, results: 0 },
    Export { name: "ringway_tell", must: false, parameters: 1, results: 1 },
    Export { name: "ringway_save", must: false, parameters: 0, results: 0 },
    Export { name: "ringway_restore", must: false, parameters: 1, results: 1 },
    Export { name: "_initialize", must: false, parameters: 0, results: 0 },
];

/// A module that was judged and compiled.
#[derive(Clone)]
pub(crate) struct Module {
    pub(crate) pre: InstancePre<State>,
    bytes: Arc<[u8]>,
}

impl Module {
    /// Judges and compiles a module. Takes up to a second for each MiB.
    ///
    /// # Errors
    /// Why it is not acceptable.
    pub(crate) fn new(engine: &Engine, linker: &Linker<State>, bytes: &[u8]) -> Result<Module, Unacceptable> {
        let compiled = compile(engine, bytes)?;
        if let Some(first) = reasons(&compiled).into_iter().next() {
            return Err(first);
        }
        let pre = linker.instantiate_pre(&compiled).map_err(|error| Unacceptable::Import(reason(&error)))?;
        Ok(Module { pre, bytes: bytes.into() })
    }

    /// Returns true if it was compiled from these bytes.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        *self.bytes == *bytes
    }

    /// Returns true if the module exports a function.
    pub(crate) fn has(&self, export: &str) -> bool {
        self.pre.module().get_export(export).is_some()
    }
}

/// Compiles a module. Takes up to a second for each MiB.
fn compile(engine: &Engine, bytes: &[u8]) -> Result<Compiled, Unacceptable> {
    if bytes.len() > MODULE_MAX {
        let what = format!("the module has {} bytes: {MODULE_MAX} are the most", bytes.len());
        return Err(Unacceptable::Module(what));
    }
    if !bytes.starts_with(&MAGIC) {
        let what = match bytes {
            [] => "the file is empty".to_owned(),
            [b'(', ..] => "it is a WebAssembly text: translate it first, for instance with wat2wasm".to_owned(),
            _ => "it is no WebAssembly module: it does not begin with the bytes 00 61 73 6d".to_owned(),
        };
        return Err(Unacceptable::Module(what));
    }
    Compiled::new(engine, bytes)
        .map_err(|error| Unacceptable::Module(format!("it is no WebAssembly module: {}", reason(&error))))
}

/// Returns all that is wrong with a module, without starting it.
pub(crate) fn judge(engine: &Engine, bytes: &[u8]) -> Vec<Unacceptable> {
    match compile(engine, bytes) {
        Ok(compiled) => reasons(&compiled),
        Err(why) => vec![why],
    }
}

/// All that is wrong with the imports and exports of a module.
fn reasons(module: &Compiled) -> Vec<Unacceptable> {
    let mut reasons = check_imports(module);
    reasons.extend(check_exports(module));
    reasons
}

/// All causes of an error, in one line. Some quote names of the module.
fn reason(error: &wasmtime::Error) -> String {
    let causes: Vec<String> = error.chain().map(|cause| cause.to_string().replace('\n', " ")).collect();
    shown(&causes.join(": "), LONGEST_REASON)
}

/// A text with names of the module, for messages: control characters escaped, and cut.
fn shown(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let cut = if end < text.len() { "..." } else { "" };
    text[..end].chars().map(escaped).collect::<String>() + cut
}

fn check_imports(module: &Compiled) -> Vec<Unacceptable> {
    let is_unknown = |module: &str, name: &str| module != host::MODULE || !host::FUNCTIONS.contains(&name);
    let unknown = module.imports().filter(|import| is_unknown(import.module(), import.name()));
    let what = |module: &str, name: &str| {
        format!(
            "the module imports \"{module}.{name}\", which Ringway does not have: only functions of the interface, from the module \
             \"ringway\", can be imported"
        )
    };
    let what = |import: ImportType<'_>| {
        Unacceptable::Import(what(&shown(import.module(), LONGEST_NAME), &shown(import.name(), LONGEST_NAME)))
    };
    unknown.map(what).collect()
}

fn check_exports(module: &Compiled) -> Vec<Unacceptable> {
    let mut reasons = Vec::new();
    let wrong = |what: &str| Unacceptable::Export(what.to_owned());
    match module.get_export("memory") {
        Some(ExternType::Memory(memory)) if memory.minimum() * PAGE > MEMORY_MAX as u64 => {
            let bytes = memory.minimum().saturating_mul(PAGE);
            let what = format!("the module wants {bytes} bytes of memory: {MEMORY_MAX} are the most");
            reasons.push(Unacceptable::Memory(what));
        }
        Some(ExternType::Memory(_)) => {}
        Some(_) => reasons.push(wrong("the export \"memory\" is no memory")),
        None => reasons.push(wrong("the module does not export \"memory\"")),
    }
    for export in &EXPORTS {
        match module.get_export(export.name) {
            None if export.must => reasons.push(wrong(&format!("the module does not export \"{}\"", export.name))),
            None => {}
            Some(ExternType::Func(function)) if export.is_like(&function) => {}
            Some(_) => {
                let what = format!("the export \"{}\" must be a function {}", export.name, export.signature());
                reasons.push(Unacceptable::Export(what));
            }
        }
    }
    let is_known = |name: &str| EXPORTS.iter().any(|export| export.name == name);
    for export in module.exports().filter(|export| export.name().starts_with(PREFIX) && !is_known(export.name())) {
        let name = shown(export.name(), LONGEST_NAME);
        let what = format!("the module exports \"{name}\", which the interface does not have");
        reasons.push(Unacceptable::Export(what));
    }
    let tables = module.exports().filter_map(|export| export.ty().table().map(wasmtime::TableType::minimum));
    if let Some(elements) = tables.max().filter(|elements| *elements > TABLE_MAX as u64) {
        let what = format!("the module wants a table of {elements} elements: {TABLE_MAX} are the most");
        reasons.push(Unacceptable::Memory(what));
    }
    reasons
}

impl Export {
    fn is_like(&self, function: &FuncType) -> bool {
        let is_word = |ty: ValType| matches!(ty, ValType::I32);
        (function.params().len(), function.results().len()) == (self.parameters, self.results)
            && function.params().all(is_word)
            && function.results().all(is_word)
    }

    fn signature(&self) -> String {
        let parameters = vec!["i32"; self.parameters].join(", ");
        let result = if self.results == 0 { "" } else { " -> i32" };
        format!("({parameters}){result}")
    }
}
