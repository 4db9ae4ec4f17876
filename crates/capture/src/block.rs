//! The blocks of a pcapng file, little-endian.

/// Section Header Block.
const SECTION: u32 = 0x0a0d_0d0a;
/// Interface Description Block.
const INTERFACE: u32 = 1;
/// Interface Statistics Block.
const STATISTICS: u32 = 5;
/// Enhanced Packet Block.
pub const PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;

/// Bytes of an Enhanced Packet Block before its data.
pub const PACKET_HEAD: usize = 28;

const OPT_END: u16 = 0;
pub const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
pub const EPB_FLAGS: u16 = 2;
pub const EPB_DROPCOUNT: u16 = 4;
const ISB_STARTTIME: u16 = 2;
const ISB_ENDTIME: u16 = 3;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

/// Most bytes of a packet's options: flags, drop count, comment, end of options, and the block's length.
pub const OPTIONS_MAX: usize = 8 + 12 + 4 + 64 + 4 + 4;

/// Builds the options at the end of a block.
#[derive(Debug)]
pub struct Tail<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Tail<N> {
    pub fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
            self.len = end;
        }
    }

    /// Adds an option. Truncates the value to the available room.
    pub fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(N.saturating_sub(self.len + 4) & !3)];
        self.put(&code.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.put(&[0; 3][..value.len().next_multiple_of(4) - value.len()]);
    }

    /// Adds the end of the options and the length of the block. `before` bytes of the block precede the options.
    pub fn end(&mut self, before: usize) {
        self.put(&OPT_END.to_le_bytes());
        self.put(&[0; 2]);
        let len = (before + self.len + 4) as u32;
        self.put(&len.to_le_bytes());
    }
}

/// Returns the beginning of a file: a section with the name of the program, and one interface.
pub fn begin(program: &str, interface: &str, snaplen: u32) -> Vec<u8> {
    let unknown_length = u64::MAX;
    let mut options = Tail::<272>::new();
    options.option(SHB_USERAPPL, program.as_bytes());
    let version = 1u32;
    let mut section: Vec<u8> = [BYTE_ORDER, version].iter().flat_map(|word| word.to_le_bytes()).collect();
    section.extend(unknown_length.to_le_bytes());
    let mut file = block(SECTION, &section, options);
    let mut options = Tail::<272>::new();
    options.option(IF_NAME, interface.as_bytes());
    // Resolution of timestamps: 10^-9 seconds.
    options.option(IF_TSRESOL, &[9]);
    file.extend(block(INTERFACE, &[ETHERNET, snaplen].map(u32::to_le_bytes).concat(), options));
    file
}

/// Returns the end of a file: start and end of the capture in nanoseconds since 1970, received and lost frames.
pub fn statistics(start: u64, end: u64, received: u64, lost: u64) -> Vec<u8> {
    let mut options = Tail::<64>::new();
    options.option(ISB_STARTTIME, &time(start));
    options.option(ISB_ENDTIME, &time(end));
    options.option(ISB_IFRECV, &received.to_le_bytes());
    options.option(ISB_IFDROP, &lost.to_le_bytes());
    let interface = 0u32;
    block(STATISTICS, &[interface.to_le_bytes().as_slice(), &time(end)].concat(), options)
}

/// Encodes a time, high half first.
pub fn time(nanoseconds: u64) -> [u8; 8] {
    let [high, low] = [(nanoseconds >> 32) as u32, nanoseconds as u32].map(u32::to_le_bytes);
    std::array::from_fn(|at| if at < 4 { high[at] } else { low[at - 4] })
}

fn block<const N: usize>(kind: u32, body: &[u8], mut options: Tail<N>) -> Vec<u8> {
    options.end(8 + body.len());
    let len = (8 + body.len() + options.bytes().len()) as u32;
    [kind.to_le_bytes().as_slice(), &len.to_le_bytes(), body, options.bytes()].concat()
}
