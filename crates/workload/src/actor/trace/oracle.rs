//! [`OracleRecord`]: libCacheSim's binary `oracleGeneral`.

/// A record of libCacheSim's `oracleGeneral` format (`libCacheSim/traceReader/customizedReader/oracle`):
/// packed, little-endian, 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleRecord {
    /// When, in seconds.
    pub clock_time: u32,
    /// Which object.
    pub object: u64,
    /// Its size in bytes.
    pub size: u32,
    /// The number of the record that accesses the object next, or a negative number. Not used in a replay.
    pub next_access: i64,
}

impl OracleRecord {
    /// Bytes of a record.
    pub const LEN: usize = 24;

    /// Reads a record.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> OracleRecord {
        let [t0, t1, t2, t3, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, n @ ..] = bytes;
        OracleRecord {
            clock_time: u32::from_le_bytes([t0, t1, t2, t3]),
            object: u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            next_access: i64::from_le_bytes(n),
        }
    }

    /// Writes a record.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (time, rest) = bytes.split_at_mut(4);
        let (object, rest) = rest.split_at_mut(8);
        let (size, next) = rest.split_at_mut(4);
        time.copy_from_slice(&self.clock_time.to_le_bytes());
        object.copy_from_slice(&self.object.to_le_bytes());
        size.copy_from_slice(&self.size.to_le_bytes());
        next.copy_from_slice(&self.next_access.to_le_bytes());
        bytes
    }
}
