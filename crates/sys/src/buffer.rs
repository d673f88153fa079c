//! [`Buffer`]: memory for reads and writes.

use std::io;

use crate::Region;

/// Bytes that begin at a page boundary, as `O_DIRECT` needs.
#[derive(Debug)]
pub struct Buffer(Region);

impl Buffer {
    /// A buffer of `bytes` bytes, none of which is zero, so that no device or file system can treat them as a
    /// hole.
    ///
    /// # Errors
    /// The kernel's, above all `ENOMEM`.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let mut buffer = Buffer(Region::anonymous(bytes.max(1))?);
        // xorshift is cheap, and its output does not compress.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for byte in buffer.as_mut() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8 | 1;
        }
        Ok(buffer)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: anonymous private memory of that length that only this value knows of.
        unsafe { std::slice::from_raw_parts(self.0.pointer(), self.0.bytes()) }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer(), self.0.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page_and_has_no_zero() {
        let buffer = Buffer::new(10_000).unwrap();
        assert_eq!(buffer.as_ref().as_ptr().addr() % crate::page_size(), 0);
        assert!(buffer.as_ref().iter().all(|byte| *byte != 0));
        assert_eq!(buffer.as_ref().len(), 10_000);
    }
}
