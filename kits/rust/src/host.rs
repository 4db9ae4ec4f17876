//! The functions of the module `ringway`, as they are.

macro_rules! functions {
    ($($(#[$what:meta])* fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        #[cfg(target_arch = "wasm32")]
        #[link(wasm_import_module = "ringway")]
        extern "C" {
            $($(#[$what])* pub fn $name($($argument: $kind),*) $(-> $result)?;)*
        }

        // Only a switch has these functions. The unit tests, which run elsewhere, call none of them.
        $(
            // SAFETY: nothing is done with the pointers. `unsafe` is part of the type, as that of the imported function.
            #[cfg(not(target_arch = "wasm32"))]
            pub unsafe fn $name($(_: $kind),*) $(-> $result)? {
                panic!("{} is a function of the switch", stringify!($name))
            }
        )*
    };
}

functions! {
    fn frames_at(frames: *mut u8, heads: *mut u8, head_bytes: usize, verdicts: *mut u32, capacity: usize);
    fn drop_reason(name: *const u8, length: usize) -> u32;
    fn counter(name: *const u8, length: usize) -> u32;
    fn gauge(name: *const u8, length: usize) -> u32;
    fn counter_add(counter: u32, value: u64);
    fn gauge_set(gauge: u32, value: i64);
    fn config(to: *mut u8, capacity: usize) -> usize;
    fn message(to: *mut u8, capacity: usize) -> usize;
    fn save(from: *const u8, length: usize);
    fn restore(offset: usize, to: *mut u8, capacity: usize) -> usize;
    fn instance() -> u32;
    fn instances() -> u32;
    fn port_by_name(name: *const u8, length: usize) -> i32;
    fn port_name(port: u32, to: *mut u8, capacity: usize) -> i32;
    fn ports(to: *mut u16, capacity: usize) -> usize;
    fn port_set(set: u32, ports: *const u16, count: usize);
    fn mac_learn(address: *const u8, vlan: u32) -> u32;
    fn mac_lookup(address: *const u8, vlan: u32) -> i32;
    fn now_ns() -> u64;
    fn random() -> u64;
    fn timer_set(ns: u64);
    fn log(text: *const u8, length: usize);
    fn map_get(key: *const u8, key_length: usize, to: *mut u8, capacity: usize) -> i32;
    fn map_set(key: *const u8, key_length: usize, value: *const u8, length: usize) -> u32;
    fn map_remove(key: *const u8, key_length: usize) -> u32;
}
