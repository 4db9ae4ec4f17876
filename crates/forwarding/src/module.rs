//! Judging a module, and having it compiled.
//!
//! # What checks the machine code
//! The compiler writes it to a pipe that only it and this process have. wasmtime checks that it was compiled with the settings of this
//! process ([`engine`](crate::engine)), for this processor and this version of Ringway, and that its tables are well formed. What the
//! instructions do is not checked, as it was not when the compiler was part of this process: cranelift confines them to the instance.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use wasmtime::{ExternType, FuncType, ImportType, Module as Compiled, ValType};

use crate::host;
use crate::limits::{MEMORY_MAX, MODULE_MAX, TABLE_MAX};
use crate::modules::Module;
use crate::runtime::Runtime;
use crate::text::{is_out_of_memory, reason, shown};
use crate::unacceptable::Unacceptable;

/// Bytes of a page of memory.
const PAGE: u64 = 65_536;
/// The first bytes of a module.
const MAGIC: [u8; 4] = *b"\0asm";
/// Longest name of a module in messages: in characters.
const LONGEST_NAME: usize = 64;
/// Names that begin so belong to the interface.
const PREFIX: &str = "ringway_";

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

/// Has a module compiled, and judges it. Takes some seconds for each MiB, and no time if a program of this runtime has the same module.
/// Ends early if `stop` becomes true.
///
/// # Errors
/// Why it is not acceptable.
pub(crate) fn acceptable(runtime: &Runtime, bytes: &[u8], stop: &AtomicBool) -> Result<Arc<Module>, Unacceptable> {
    if let Some(module) = runtime.modules.of(bytes) {
        return Ok(module);
    }
    let compiled = compile(runtime, bytes, stop)?;
    if let Some(first) = reasons(&compiled).into_iter().next() {
        return Err(first);
    }
    let pre = runtime.linker.instantiate_pre(&compiled).map_err(|error| Unacceptable::Import(reason(&error)))?;
    Ok(runtime.modules.add(Module { pre, bytes: bytes.into() }))
}

/// Has a module compiled. Takes some seconds for each MiB.
fn compile(runtime: &Runtime, bytes: &[u8], stop: &AtomicBool) -> Result<Compiled, Unacceptable> {
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
    load(runtime, &runtime.compiler.compile(bytes, stop)?)
}

/// Loads machine code.
#[allow(unsafe_code)]
fn load(runtime: &Runtime, code: &[u8]) -> Result<Compiled, Unacceptable> {
    // SAFETY: the code is what wasmtime's compiler made, in this process or in an executable that is trusted as this one is; it came
    // through a pipe that no other process has, and cannot change during the call.
    let loaded = unsafe { Compiled::deserialize(&runtime.engine, code) };
    loaded.map_err(|error| {
        if is_out_of_memory(&error) {
            return Unacceptable::System(format!("there is no memory for the machine code: {}", reason(&error)));
        }
        let what = "the machine code from the compiler of programs does not fit this ringway: install both from the same sources";
        Unacceptable::System(format!("{what}: {}", reason(&error)))
    })
}

/// Returns all that is wrong with a module, without starting it.
pub(crate) fn judge(runtime: &Runtime, bytes: &[u8]) -> Vec<Unacceptable> {
    match compile(runtime, bytes, &AtomicBool::new(false)) {
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
