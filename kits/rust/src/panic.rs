//! A panic ends as the fault `trap`; the log has its place.

#[cfg(all(target_arch = "wasm32", not(test)))]
#[panic_handler]
fn panicked(why: &core::panic::PanicInfo<'_>) -> ! {
    match why.location() {
        Some(place) => crate::log!("panic at {}:{}", place.file(), place.line()),
        None => crate::log("panic"),
    }
    core::arch::wasm32::unreachable()
}
