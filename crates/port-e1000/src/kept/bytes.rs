//! Values in a record, one after the other, in the machine's byte order.

/// Appends values.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn u16s(&mut self, values: &[u16]) {
        values.iter().for_each(|value| self.0.extend_from_slice(&value.to_ne_bytes()));
    }

    pub(crate) fn u32s(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.u32(*value));
    }

    /// As many bytes as the reader expects.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Any number of bytes, after that number.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.raw(bytes);
    }
}

/// Reads what a [`Writer`] has written. `None`: the bytes end earlier.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.raw(N)?.first_chunk().copied()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(crate) fn u16s(&mut self, into: &mut [u16]) -> Option<()> {
        into.iter_mut().try_for_each(|value| self.array().map(|bytes| *value = u16::from_ne_bytes(bytes)))
    }

    pub(crate) fn u32s(&mut self, into: &mut [u32]) -> Option<()> {
        into.iter_mut().try_for_each(|value| self.u32().map(|read| *value = read))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.raw(len)
    }
}
