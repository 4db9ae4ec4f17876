//! Modules made of arbitrary bytes: every export of the interface is a list of calls of host functions, and of instructions.

/// The host functions: parameters and result, `i` for 32 bits and `l` for 64.
const HOST: [(&str, &str, &str); 25] = [
    ("frames_at", "iiiii", ""),
    ("config", "ii", "i"),
    ("counter", "ii", "i"),
    ("counter_add", "il", ""),
    ("drop_reason", "ii", "i"),
    ("gauge", "ii", "i"),
    ("gauge_set", "il", ""),
    ("instance", "", "i"),
    ("instances", "", "i"),
    ("log", "ii", ""),
    ("mac_learn", "ii", "i"),
    ("mac_lookup", "ii", "i"),
    ("map_get", "iiii", "i"),
    ("map_remove", "ii", "i"),
    ("map_set", "iiii", "i"),
    ("message", "ii", "i"),
    ("now_ns", "", "l"),
    ("port_by_name", "ii", "i"),
    ("port_name", "iii", "i"),
    ("port_set", "iii", ""),
    ("ports", "ii", "i"),
    ("random", "", "l"),
    ("restore", "iii", "i"),
    ("save", "ii", ""),
    ("timer_set", "l", ""),
];

/// The exports of the interface besides `memory`.
const EXPORTS: [(&str, &str, &str); 8] = [
    ("ringway_interface", "", "i"),
    ("ringway_start", "", "i"),
    ("ringway_frames", "ii", ""),
    ("ringway_ports", "", ""),
    ("ringway_timer", "", ""),
    ("ringway_tell", "i", "i"),
    ("ringway_save", "", ""),
    ("ringway_restore", "i", "i"),
];

/// What the memory begins with: names that there are, and some that are none.
const TEXT: &[u8] = b"p0p1p2p3p9one_nameAnother\xff\xfe\0\x1b[2J";

/// The arrays of a usual `frames_at`: descriptors, heads, their bytes, verdicts, capacity.
const LAYOUT: [u32; 5] = [8192, 16384, 64, 4096, 3];

/// Numbers at which something begins or ends.
const EDGES: [u32; 12] = [0, 1, 63, 64, 65, 4096, 65_535, 65_536, 0x1_0001, 0x4_0000, 0x7fff_ffff, u32::MAX];

/// Bytes that run out: then they are zeroes.
pub struct Bytes<'b>(pub &'b [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

fn unsigned(mut value: u32, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(mut value: i64, out: &mut Vec<u8>) {
    while !(-64..64).contains(&value) {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}

fn text(text: &[u8], out: &mut Vec<u8>) {
    unsigned(text.len() as u32, out);
    out.extend_from_slice(text);
}

fn section(id: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(id);
    text(body, out);
}

fn signature(parameters: &str, results: &str, out: &mut Vec<u8>) {
    out.push(0x60);
    for types in [parameters, results] {
        let value = |ty| if ty == b'i' { 0x7f } else { 0x7e };
        text(&types.bytes().map(value).collect::<Vec<u8>>(), out);
    }
}

/// An instruction that gives an argument. `local` has the result of the last call.
fn argument(ty: u8, bytes: &mut Bytes<'_>, local: u32, out: &mut Vec<u8>) {
    let how = bytes.byte();
    let value = match how % 6 {
        0 | 1 => u32::from(bytes.byte()),
        2 => EDGES[usize::from(bytes.byte()) % EDGES.len()],
        3 => LAYOUT[3] + 4 * u32::from(bytes.byte() % 4),
        4 => bytes.word(),
        _ if ty == b'i' => {
            out.push(0x20);
            return unsigned(local, out);
        }
        _ => 0,
    };
    if ty == b'i' {
        out.push(0x41);
        signed((value as i32).into(), out);
    } else {
        out.push(0x42);
        signed(if how & 0x80 > 0 { -i64::from(value) } else { value.into() }, out);
    }
}

/// The body of an export.
fn body(number: usize, bytes: &mut Bytes<'_>) -> Vec<u8> {
    let (name, parameters, results) = EXPORTS[number];
    let local = parameters.len() as u32;
    let mut code = vec![1, 1, 0x7f];
    let int = |value: u32, code: &mut Vec<u8>| {
        code.push(0x41);
        signed((value as i32).into(), code);
    };
    if name == "ringway_start" {
        LAYOUT.iter().for_each(|value| int(*value, &mut code));
        code.extend([0x10, 0]);
    }
    let count = if name == "ringway_interface" { 0 } else { bytes.byte() % 16 };
    for _ in 0..count {
        let what = usize::from(bytes.byte()) % (HOST.len() + 6);
        if let Some((_, parameters, results)) = HOST.get(what) {
            parameters.bytes().for_each(|ty| argument(ty, bytes, local, &mut code));
            code.push(0x10);
            unsigned(what as u32, &mut code);
            match *results {
                "i" => {
                    code.push(0x21);
                    unsigned(local, &mut code);
                }
                "l" => code.push(0x1a),
                _ => {}
            }
            continue;
        }
        match what - HOST.len() {
            // A verdict, or something else in memory.
            0 | 1 => {
                argument(b'i', bytes, local, &mut code);
                argument(b'i', bytes, local, &mut code);
                code.extend([0x36, 0, 0]);
            }
            2 => {
                int(bytes.byte().into(), &mut code);
                code.extend([0x40, 0, 0x1a]);
            }
            3 => {
                (0..3).for_each(|_| argument(b'i', bytes, local, &mut code));
                code.extend([0xfc, 11, 0]);
            }
            // A loop that never ends takes a second where a program starts.
            4 if name == "ringway_frames" => code.extend([0x03, 0x40, 0x0c, 0, 0x0b]),
            _ => code.push(0x00),
        }
    }
    if !results.is_empty() {
        int((name == "ringway_interface").into(), &mut code);
    }
    code.push(0x0b);
    code
}

/// A module made of these bytes.
pub fn module(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    let all = HOST.iter().chain(&EXPORTS);
    let mut types = vec![(HOST.len() + EXPORTS.len()) as u8];
    all.for_each(|(_, parameters, results)| signature(parameters, results, &mut types));
    section(1, &types, &mut out);
    let mut imports = vec![HOST.len() as u8];
    for (number, (name, ..)) in HOST.iter().enumerate() {
        text(b"ringway", &mut imports);
        text(name.as_bytes(), &mut imports);
        imports.extend([0, number as u8]);
    }
    section(2, &imports, &mut out);
    let functions = HOST.len() as u8..(HOST.len() + EXPORTS.len()) as u8;
    section(3, &[&[EXPORTS.len() as u8], &functions.clone().collect::<Vec<u8>>()[..]].concat(), &mut out);
    section(5, &[1, 0, 2], &mut out);
    let mut exports = vec![1 + EXPORTS.len() as u8];
    text(b"memory", &mut exports);
    exports.extend([2, 0]);
    for ((name, ..), function) in EXPORTS.iter().zip(functions) {
        text(name.as_bytes(), &mut exports);
        exports.extend([0, function]);
    }
    section(7, &exports, &mut out);
    let mut code = vec![EXPORTS.len() as u8];
    (0..EXPORTS.len()).for_each(|number| text(&body(number, bytes), &mut code));
    section(10, &code, &mut out);
    let mut data = vec![1, 0, 0x41, 0, 0x0b];
    text(TEXT, &mut data);
    section(11, &data, &mut out);
    out
}
