//! A signal that makes a waiting system call return.

use std::sync::Once;
use std::thread::JoinHandle;

/// Installs an empty handler of SIGURG, once per process, so that the signal makes a waiting system call return.
pub(super) fn make_interruptible() {
    static INSTALLED: Once = Once::new();
    extern "C" fn nothing(_signal: libc::c_int) {}
    INSTALLED.call_once(|| {
        // SAFETY: the handler does nothing; the structure is valid when zeroed; without SA_RESTART a waiting system call returns.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut());
        }
    });
}

/// Makes the system call return in which `thread` waits, if it is one that signals interrupt.
pub fn interrupt<T>(thread: &JoinHandle<T>) {
    use std::os::unix::thread::JoinHandleExt;
    make_interruptible();
    // SAFETY: the thread has been neither joined nor detached, so that its handle is valid.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGURG) };
}
