//! Requests to network devices (netdevice(7)), in the network namespace of the calling thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Returns a socket for requests. Requests to devices can be made at any socket, and nothing else can be done with this one.
pub fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Returns the number of a device.
pub fn index(name: &str, socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
}

/// Returns the name of the device with this number. Unlike requests by name it loads no module for a device that is gone.
pub fn name_of(device: u32, socket: BorrowedFd<'_>) -> io::Result<String> {
    let mut request = request("?")?;
    request.ifr_ifru.ifru_ifindex = device as libc::c_int;
    ioctl(socket, libc::SIOCGIFNAME, &mut request)?;
    name_in(&request)
}

/// Returns the name that the kernel has written into a request.
pub fn name_in(request: &libc::ifreq) -> io::Result<String> {
    let name = request.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte.cast_unsigned());
    String::from_utf8(name.collect()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// Returns the Ethernet address of a device, or `None` if it has another kind of address.
pub fn address(name: &str, socket: BorrowedFd<'_>) -> io::Result<Option<[u8; 6]>> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is valid numbers.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let bytes = std::array::from_fn(|at| address.sa_data[at].cast_unsigned());
    Ok((address.sa_family == libc::ARPHRD_ETHER).then_some(bytes))
}

/// The structure of a command of ethtool.
///
/// # Safety
/// The structure is that of `include/uapi/linux/ethtool.h` for the commands that its first word has: the kernel reads and writes no byte
/// beyond it. Any bytes are a value of it.
unsafe trait Command {}

/// `struct ethtool_drvinfo`, for `ETHTOOL_GDRVINFO`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    others: [u8; 160],
}

// SAFETY: it has the 196 bytes of `struct ethtool_drvinfo`, and `driver` gives it that command.
unsafe impl Command for DriverInfo {}

/// `struct ethtool_channels`, for `ETHTOOL_GCHANNELS`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

// SAFETY: it has the nine words of `struct ethtool_channels`, and `receive_queues` gives it that command.
unsafe impl Command for Channels {}

/// Words of 32 features each. Kernels have two of them today.
const FEATURE_WORDS: usize = 4;
const MOST_FEATURES: usize = 32 * FEATURE_WORDS;

/// `struct ethtool_sset_info` with one number, for `ETHTOOL_GSSET_INFO`.
#[repr(C)]
struct StringsCount {
    command: u32,
    reserved: u32,
    sets: u64,
    count: u32,
    padding: u32,
}

// SAFETY: `feature_names` asks for one set, for which the kernel writes one number.
unsafe impl Command for StringsCount {}

/// `struct ethtool_gstrings`, for `ETHTOOL_GSTRINGS`.
#[repr(C)]
struct Strings {
    command: u32,
    set: u32,
    len: u32,
    names: [[u8; 32]; MOST_FEATURES],
}

// SAFETY: the kernel writes as many names as the set has: `feature_names` has checked that there is room for them.
unsafe impl Command for Strings {}

/// `struct ethtool_gfeatures`, for `ETHTOOL_GFEATURES`.
#[repr(C)]
struct Features {
    command: u32,
    words: u32,
    /// Available, requested, active, never changed.
    states: [[u32; 4]; FEATURE_WORDS],
}

// SAFETY: the kernel writes no more words than `words` says, which `features` sets to the room.
unsafe impl Command for Features {}

/// `struct ethtool_sfeatures`, for `ETHTOOL_SFEATURES`.
#[repr(C)]
struct ChangedFeatures {
    command: u32,
    words: u32,
    /// Which are changed, and to what.
    changes: [[u32; 2]; FEATURE_WORDS],
}

// SAFETY: the kernel reads as many words as it has, and only if `words` is that number; `set_features` has bounded it.
unsafe impl Command for ChangedFeatures {}

/// Makes a request of ethtool.
fn ethtool<C: Command>(name: &str, socket: BorrowedFd<'_>, command: &mut C) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
    ioctl(socket, libc::SIOCETHTOOL, &mut request)
}

/// Returns the name of a device's driver.
pub fn driver(name: &str, socket: BorrowedFd<'_>) -> io::Result<String> {
    const GET_DRIVER_INFO: u32 = 3;
    let mut info = DriverInfo { command: GET_DRIVER_INFO, driver: [0; 32], others: [0; 160] };
    ethtool(name, socket, &mut info)?;
    let name = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Returns the number of receive queues that a device uses, if its driver tells it.
pub fn receive_queues(name: &str, socket: BorrowedFd<'_>) -> Option<u32> {
    const GET_CHANNELS: u32 = 0x3c;
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    ethtool(name, socket, &mut channels).ok()?;
    Some(channels.receive.saturating_add(channels.combined))
}

/// Returns the features that take VLAN tags out of received frames, as far as a device has them on, by their bits.
pub fn tag_removal(name: &str, socket: BorrowedFd<'_>) -> io::Result<u128> {
    let removal = tag_features(name, socket)?;
    let active = features(name, socket)?.states.map(|[_, _, active, _]| active);
    Ok(active.iter().rev().fold(0, |bits, &word| bits << 32 | u128::from(word)) & removal)
}

/// Returns the bits of the features that take VLAN tags out of received frames.
pub fn tag_features(name: &str, socket: BorrowedFd<'_>) -> io::Result<u128> {
    let names = feature_names(name, socket)?;
    let removes = |text: &[u8; 32]| {
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        matches!(text, b"rx-vlan-hw-parse" | b"rx-vlan-stag-hw-parse")
    };
    Ok((0..MOST_FEATURES).filter(|&bit| removes(&names[bit])).fold(0, |bits, bit| bits | 1 << bit))
}

/// Sets these features of a device. Those that cannot be changed stay as they are.
pub fn set_features(name: &str, socket: BorrowedFd<'_>, bits: u128, on: bool) -> io::Result<()> {
    const SET_FEATURES: u32 = 0x3b;
    let words = features(name, socket)?.words.min(FEATURE_WORDS as u32);
    let changes = std::array::from_fn(|word| {
        let valid = (bits >> (32 * word)) as u32;
        [valid, if on { valid } else { 0 }]
    });
    ethtool(name, socket, &mut ChangedFeatures { command: SET_FEATURES, words, changes })
}

fn features(name: &str, socket: BorrowedFd<'_>) -> io::Result<Features> {
    const GET_FEATURES: u32 = 0x3a;
    let mut features = Features { command: GET_FEATURES, words: FEATURE_WORDS as u32, states: [[0; 4]; FEATURE_WORDS] };
    ethtool(name, socket, &mut features)?;
    Ok(features)
}

/// Returns the names of the features of the kernel's devices, by their bits.
fn feature_names(name: &str, socket: BorrowedFd<'_>) -> io::Result<[[u8; 32]; MOST_FEATURES]> {
    const GET_COUNTS: u32 = 0x37;
    const GET_STRINGS: u32 = 0x1b;
    const FEATURES: u32 = 4;
    let mut count = StringsCount { command: GET_COUNTS, reserved: 0, sets: 1 << FEATURES, count: 0, padding: 0 };
    ethtool(name, socket, &mut count)?;
    if count.count as usize > MOST_FEATURES {
        return Err(io::Error::other("its kernel has more features than this version of Ringway knows"));
    }
    let mut strings = Strings { command: GET_STRINGS, set: FEATURES, len: 0, names: [[0; 32]; MOST_FEATURES] };
    ethtool(name, socket, &mut strings)?;
    Ok(strings.names)
}

/// Returns the longest packet of a device without its Ethernet header.
pub fn mtu(name: &str, socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Sets the longest packet of a device without its Ethernet header.
pub fn set_mtu(name: &str, socket: BorrowedFd<'_>, mtu: u16) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = mtu.into();
    ioctl(socket, libc::SIOCSIFMTU, &mut request)
}

/// Sets the Ethernet address of a device.
pub fn set_address(name: &str, socket: BorrowedFd<'_>, address: [u8; 6]) -> io::Result<()> {
    let mut request = request(name)?;
    let mut sa_data = [0; 14];
    sa_data.iter_mut().zip(address).for_each(|(to, from)| *to = from.cast_signed() as libc::c_char);
    request.ifr_ifru.ifru_hwaddr = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data };
    ioctl(socket, libc::SIOCSIFHWADDR, &mut request)
}

/// Returns true if a device is up and has a carrier.
///
/// # Errors
/// There is no such device.
pub fn is_running(name: &str, socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(flags(name, socket)? & libc::IFF_RUNNING != 0)
}

/// Returns true if an administrator has a device up.
///
/// # Errors
/// There is no such device.
pub fn is_up(name: &str, socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(flags(name, socket)? & libc::IFF_UP != 0)
}

fn flags(name: &str, socket: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// The error of a request about a device.
pub fn cannot(name: &str, what: &str, why: &str, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("network device \"{name}\": cannot {what}: {why}"))
}

/// Brings a device up. Leaves it down if this user may not.
pub fn bring_up(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    if i32::from(flags) & libc::IFF_UP != 0 {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    match ioctl(socket, libc::SIOCSIFFLAGS, &mut request) {
        // The owner of a persistent device may use it without the right to bring it up. An administrator has to do so.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => other,
    }
}

/// Length of the kernel's queue of frames from a TAP device or a macvtap. The kernel drops frames that do not fit. With its default of
/// 500, a TCP stream loses 1 to 2 % of its frames whenever the poller does not get its CPU in time.
const QUEUE_FRAMES: libc::c_int = 2000;

/// Makes that queue longer, if it is shorter. Leaves it in a user namespace: the kernel asks for CAP_NET_ADMIN of the first one.
pub fn lengthen_queue(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFTXQLEN, &mut request)?;
    // The kernel's `ifr_qlen` is the same member of the union.
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    if unsafe { request.ifr_ifru.ifru_metric } >= QUEUE_FRAMES {
        return Ok(());
    }
    request.ifr_ifru.ifru_metric = QUEUE_FRAMES;
    match ioctl(socket, libc::SIOCSIFTXQLEN, &mut request) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => other,
    }
}

/// Returns a request about the device `name`.
///
/// # Errors
/// No device can have this name.
pub fn request(name: &str) -> io::Result<libc::ifreq> {
    // With `%d` in a name, the kernel would choose a number.
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '%', '\0']) {
        let what = format!("{name:?} is not a network device's name: write 1 to 15 bytes without \"/\" and \"%\"");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // SAFETY: all zeroes is a valid ifreq: numbers, arrays of numbers, and null pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Makes a request by any socket, or by a TAP device.
pub fn ioctl<N>(fd: BorrowedFd<'_>, number: N, request: &mut libc::ifreq) -> io::Result<()>
where
    libc::Ioctl: TryFrom<N>,
{
    let number = libc::Ioctl::try_from(number).map_err(|_| io::Error::other("not a number of an ioctl"))?;
    // SAFETY: every request number used in this crate (TUNSETIFF, TUNGETIFF and those of netdevice(7)) takes one ifreq,
    // and `request` outlives the call. Of its addresses the kernel follows only that of SIOCETHTOOL, which is a `Command`.
    match unsafe { libc::ioctl(fd.as_raw_fd(), number, &raw mut *request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_change_or_cut_off_are_refused() {
        for name in ["", "tap%d", "a/b", "a\0b", "sixteen-letters!"] {
            let Err(error) = request(name) else { panic!("{name:?} should be refused") };
            assert!(error.to_string().contains("write 1 to 15 bytes"), "{error}");
        }
        assert!(request("fifteen-letters").is_ok());
    }
}
