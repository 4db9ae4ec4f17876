use super::*;

const COMMENT: u16 = 1;

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut select = Select::new(Vec::new(), |_: &[u8], _| true, "", 0);
    select.put(kind, body);
    select.out
}

/// Returns the block of a frame, with the count of frames lost before it.
fn frame(data: &[u8], len: u32, lost: Option<u64>) -> Vec<u8> {
    let mut body = [[0u8; 12].as_slice(), &(data.len() as u32).to_le_bytes(), &len.to_le_bytes(), data].concat();
    body.resize(body.len().next_multiple_of(4), 0);
    option(&mut body, 2, &[1, 0, 0, 0]);
    if let Some(lost) = lost {
        option(&mut body, EPB_DROPCOUNT, &lost.to_le_bytes());
    }
    option(&mut body, COMMENT, b"dropped: x");
    option(&mut body, OPT_END, &[]);
    block(PACKET, &body)
}

fn interface(snaplen: u32) -> Vec<u8> {
    let mut body = [[1, 0, 0, 0], snaplen.to_le_bytes()].concat();
    option(&mut body, 2, b"lan0:a");
    option(&mut body, OPT_END, &[]);
    block(INTERFACE, &body)
}

/// Selects the frames whose first byte is even, in pieces of `piece` bytes.
fn selected(stream: &[u8], snaplen: u32, piece: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut select =
        Select::new(&mut out, |bytes: &[u8], _| bytes.first().is_some_and(|byte| byte % 2 == 0), "even", snaplen);
    for bytes in stream.chunks(piece) {
        select.write_all(bytes)?;
    }
    Ok(out)
}

#[test]
fn accepted_frames_and_other_blocks_pass_unchanged_however_they_are_cut_into_pieces() {
    let other = block(5, &[7; 32]);
    let (a, b, c) = (frame(&[2; 61], 61, None), frame(&[3; 60], 60, None), frame(&[4; 14], 90, Some(3)));
    let stream = [&a[..], &b, &other, &c].concat();
    for piece in [1, 3, 4, 7, 64, 1000] {
        assert_eq!(selected(&stream, u32::MAX, piece).unwrap(), [&a[..], &other, &c].concat(), "{piece}");
    }
}

#[test]
fn the_count_of_lost_frames_moves_from_a_refused_frame_to_the_next_accepted_one() {
    let stream = [frame(&[1; 14], 14, Some(3)), frame(&[3; 14], 14, Some(4)), frame(&[2; 14], 14, Some(5))].concat();
    let out = selected(&stream, u32::MAX, 1000).unwrap();
    let mut counts = Vec::new();
    each_option(&out[HEAD + PACKET_FIXED + 16..out.len() - 4], |code, value| counts.push((code, value.to_vec())))
        .unwrap();
    let wanted =
        [(2, vec![1, 0, 0, 0]), (COMMENT, b"dropped: x".to_vec()), (EPB_DROPCOUNT, 12u64.to_le_bytes().to_vec())];
    assert_eq!(counts, wanted);
    // The next frame has no count.
    let next = frame(&[2; 14], 14, None);
    assert_eq!(selected(&[&stream[..], &next].concat(), u32::MAX, 1000).unwrap(), [&out[..], &next].concat());
}

#[test]
fn frames_are_cut_after_the_filter_and_keep_their_length() {
    let mut data = [2; 61];
    data[14..].fill(9);
    let out = selected(&[interface(262_144), frame(&data, 700, None)].concat(), 17, 1000).unwrap();
    let interface = word(&out[4..]) as usize;
    assert_eq!(word(&out[HEAD + 4..]), 17, "the interface's snap length");
    let frame = &out[interface..];
    assert_eq!([12, 16].map(|at| word(&frame[HEAD + at..])), [17, 700]);
    assert_eq!(frame[HEAD + PACKET_FIXED..][..20], [&data[..17], &[0; 3]].concat());
}

#[test]
fn the_interface_has_the_filter() {
    let out = selected(&interface(100), u32::MAX, 1000).unwrap();
    let mut options = Vec::new();
    each_option(&out[HEAD + INTERFACE_FIXED..out.len() - 4], |code, value| options.push((code, value.to_vec())))
        .unwrap();
    assert_eq!(options, [(2, b"lan0:a".to_vec()), (IF_FILTER, b"\0even".to_vec())]);
    assert_eq!(word(&out[HEAD + 4..]), 100);
}

#[test]
fn what_is_not_pcapng_is_an_error_and_nothing_worse() {
    let mut beyond = frame(&[2; 14], 14, None);
    beyond[HEAD + 12..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut option = frame(&[1; 14], 14, None);
    option[HEAD + PACKET_FIXED + 16 + 2..][..2].copy_from_slice(&u16::MAX.to_le_bytes());
    for wrong in [&b"HTTP/1.1 200 OK\r\n"[..], &[6, 0, 0, 0, 12, 0, 0, 0, 12, 0, 0, 0], &[0; 8], &beyond, &option] {
        let error = selected(wrong, u32::MAX, 1000).unwrap_err();
        assert!(error.to_string().contains("not pcapng"), "{error}");
    }
}
