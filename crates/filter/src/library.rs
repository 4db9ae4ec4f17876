//! The functions of libpcap that filters need, from a library that is opened at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

/// The names of libpcap: Debian's soname, and that of upstream and other distributions.
pub const NAMES: [&CStr; 2] = [c"libpcap.so.0.8", c"libpcap.so.1"];

/// DLT_EN10MB.
const ETHERNET: c_int = 1;
/// PCAP_NETMASK_UNKNOWN.
const NO_NETMASK: c_uint = c_uint::MAX;

/// The class, the mode and no more of an instruction that loads from a fixed place (BPF_LD | BPF_ABS).
const LOAD_FIXED: u16 = 0x20;
/// BPF_CLASS and BPF_MODE.
const CLASS_AND_MODE: u16 = 0xe7;
/// Loads from this place on are of what the kernel knows about a frame beside its bytes (SKF_AD_OFF).
const BESIDE_FRAME: u32 = 0xffff_f000;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Debug)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    k: u32,
}

/// `struct bpf_program`: a compiled filter in libpcap's memory.
#[repr(C)]
#[derive(Debug)]
pub struct Program {
    instructions: c_uint,
    first: *mut Instruction,
}

impl Program {
    /// Returns true if the program needs more than a frame's bytes: its interface or its direction, which only the kernel's sockets
    /// tell. libpcap's interpreter accepts no frame then.
    pub fn needs_kernel(&self) -> bool {
        if self.first.is_null() {
            return false;
        }
        // SAFETY: `Library::compile` made the program, with so many instructions, and it is not freed yet.
        let instructions = unsafe { std::slice::from_raw_parts(self.first, self.instructions as usize) };
        instructions.iter().any(|one| one.code & CLASS_AND_MODE == LOAD_FIXED && one.k >= BESIDE_FRAME)
    }
}

/// `struct pcap_pkthdr`. A filter reads the lengths alone.
#[repr(C)]
#[derive(Debug)]
pub struct PacketHeader {
    time: libc::timeval,
    captured: c_uint,
    len: c_uint,
}

impl PacketHeader {
    /// The header of a frame of `len` bytes, of which `captured` are there.
    pub fn new(captured: u32, len: u32) -> Self {
        Self { time: libc::timeval { tv_sec: 0, tv_usec: 0 }, captured, len }
    }
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut Program, *const c_char, c_int, c_uint) -> c_int;
type GetError = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type Close = unsafe extern "C" fn(*mut c_void);
type FreeCode = unsafe extern "C" fn(*mut Program);
type OfflineFilter = unsafe extern "C" fn(*const Program, *const PacketHeader, *const u8) -> c_int;

/// An open libpcap. It stays open until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    open_dead: OpenDead,
    compile: Compile,
    get_error: GetError,
    close: Close,
    free_code: FreeCode,
    offline_filter: OfflineFilter,
}

impl Library {
    /// Opens the first library of these names that the host has.
    ///
    /// # Errors
    /// There is none, or it lacks a function.
    pub fn open(names: &[&CStr]) -> Result<Self, String> {
        let mut why = String::new();
        for name in names {
            // SAFETY: the name ends with NUL. The initialisers of libpcap have no conditions.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if let Some(handle) = NonNull::new(handle) {
                return Self::resolve(handle, &name.to_string_lossy());
            }
            if why.is_empty() {
                why = last_error();
            }
        }
        Err(why)
    }

    fn resolve(handle: NonNull<c_void>, library: &str) -> Result<Self, String> {
        let find = |name: &CStr| {
            // SAFETY: the handle is that of an open library, and is never closed.
            let found = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
            if found.is_null() {
                return Err(format!("{library} has no function {}", name.to_string_lossy()));
            }
            Ok(found)
        };
        // SAFETY: pcap(3PCAP) declares the functions of these names with these types, unchanged since version 0.8. A pointer to
        // a function has the size of a pointer to data on the platforms that have dlsym.
        unsafe {
            Ok(Self {
                open_dead: std::mem::transmute::<*mut c_void, OpenDead>(find(c"pcap_open_dead")?),
                compile: std::mem::transmute::<*mut c_void, Compile>(find(c"pcap_compile")?),
                get_error: std::mem::transmute::<*mut c_void, GetError>(find(c"pcap_geterr")?),
                close: std::mem::transmute::<*mut c_void, Close>(find(c"pcap_close")?),
                free_code: std::mem::transmute::<*mut c_void, FreeCode>(find(c"pcap_freecode")?),
                offline_filter: std::mem::transmute::<*mut c_void, OfflineFilter>(find(c"pcap_offline_filter")?),
            })
        }
    }

    /// Compiles an expression for Ethernet frames.
    ///
    /// # Errors
    /// libpcap's text.
    pub fn compile(&self, expression: &str, snaplen: c_int) -> Result<Program, String> {
        let text = CString::new(expression).map_err(|_| "the expression holds a NUL byte".to_owned())?;
        let mut program = Program { instructions: 0, first: ptr::null_mut() };
        // SAFETY: pcap_open_dead has no conditions. Its handle is used here alone, is checked, and is closed once. The expression
        // ends with NUL. pcap_compile fills the program, or fails; then pcap_geterr returns text that lives as long as the handle.
        unsafe {
            let handle = (self.open_dead)(ETHERNET, snaplen);
            if handle.is_null() {
                return Err("libpcap has no memory".to_owned());
            }
            let optimise = 1;
            let failed = (self.compile)(handle, &mut program, text.as_ptr(), optimise, NO_NETMASK) != 0;
            let result = if failed { Err(owned((self.get_error)(handle))) } else { Ok(program) };
            (self.close)(handle);
            result
        }
    }

    /// Returns true if the program accepts a frame with these first bytes.
    pub fn accepts(&self, program: &Program, header: &PacketHeader, bytes: &[u8]) -> bool {
        debug_assert!(header.captured as usize <= bytes.len());
        // SAFETY: `compile` made the program, and `free` has not been called (it takes the program mutably, from `Drop` alone).
        // The interpreter reads `captured` bytes at most, which are there.
        unsafe { (self.offline_filter)(program, header, bytes.as_ptr()) != 0 }
    }

    /// Frees a program. It accepts every frame after that.
    pub fn free(&self, program: &mut Program) {
        // SAFETY: `compile` made the program. pcap_freecode frees its instructions and sets the pointer to null.
        unsafe { (self.free_code)(program) }
    }
}

/// Returns the text of the last error of the dynamic loader.
fn last_error() -> String {
    // SAFETY: dlerror returns null or text that lives until this thread's next call of the loader.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "libpcap cannot be opened".to_owned() } else { owned(text) }
    }
}

/// Copies a C string.
///
/// # Safety
/// The pointer is that of a string that ends with NUL.
unsafe fn owned(text: *const c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
