//! The built library defines what it is meant to interpose. Cargo builds a package's library for its integration tests: this test is also
//! why `cargo test` of the workspace builds the library for `crates/ringway/tests/libraries/netmap`.

#[test]
fn the_library_defines_the_functions_that_programs_call() {
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.parent().expect("cargo's deps folder");
    let library = std::fs::read(folder.join("libringway_netmap.so")).expect("cargo builds the library first");
    for name in
        ["open", "open64", "__open_2", "openat", "ioctl", "mmap", "poll", "__poll_chk", "epoll_wait", "dup2", "recvmsg"]
    {
        let symbol = [b"\0", name.as_bytes(), b"\0"].concat();
        assert!(library.windows(symbol.len()).any(|bytes| bytes == symbol), "{name} is not in the library");
    }
}
