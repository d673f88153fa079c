//! What the kernel log says of disks that fail, and of servers that do not answer.

use std::fmt;

use serde::Serialize;

/// One line on a disk or a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageError {
    /// A request that failed, or a link or controller that had to be reset: the device's name (`sda`,
    /// `nvme0`, `ata1`).
    Device(String),
    /// An NFS server that does not answer.
    Server(String),
}

/// What stands before a device's name where a request failed: `block/blk-core.c:blk_update_request`,
/// `fs/buffer.c:buffer_io_error` and their predecessors.
const BEFORE_NAME: [&str; 5] = [
    "I/O error, dev ",
    "medium error, dev ",
    "Buffer I/O error on device ",
    "Buffer I/O error on dev ",
    "target error, dev ",
];

/// Texts of which such a line has at least one.
pub(super) const SIGNS: [&str; 7] = [
    "I/O error, dev ",
    "medium error, dev ",
    "target error, dev ",
    "Buffer I/O error on dev",
    ": exception Emask 0x",
    " not responding, ",
    " FAILED Result: ",
];

impl StorageError {
    /// Reads a message of the kernel.
    pub fn of(message: &str) -> Option<StorageError> {
        let device = |name: &str| known(name).then(|| StorageError::Device(name.to_owned()));
        if let Some((_, rest)) = BEFORE_NAME.iter().find_map(|text| message.split_once(text)) {
            return device(rest.split([',', ' ']).next()?);
        }
        // `nfs: server nas1 not responding, still trying` (`net/sunrpc/clnt.c:rpc_check_timeout`).
        if let Some(rest) = message.strip_prefix("nfs: server ") {
            let (name, _) = rest.split_once(" not responding, ")?;
            return (!name.is_empty()).then(|| StorageError::Server(name.to_owned()));
        }
        // `ata1.00: exception Emask 0x0 SAct 0x0 …` (`drivers/ata/libata-eh.c:ata_eh_link_report`).
        if let Some((port, _)) = message.split_once(": exception Emask 0x") {
            return device(port.split('.').next()?);
        }
        // `sd 0:0:0:0: [sda] tag#0 FAILED Result: hostbyte=…` (`drivers/scsi/scsi_logging.c`).
        let (_, rest) = message.strip_prefix("sd ")?.split_once(": [")?;
        let (name, rest) = rest.split_once(']')?;
        rest.contains("FAILED Result: ").then(|| device(name))?
    }
}

/// Whether a name is one that drivers give.
fn known(name: &str) -> bool {
    let drivers = [
        "sd", "hd", "vd", "xvd", "nvme", "md", "dm-", "mmcblk", "ata", "sr", "loop", "nbd", "rbd", "zd", "fd",
    ];
    name.len() <= 16
        && drivers.iter().any(|driver| name.starts_with(driver))
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// As the kernel prints it, without addresses.
impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Device(name) => write!(f, "I/O error, dev {name}, sector 0"),
            StorageError::Server(name) => write!(f, "nfs: server {name} not responding, still trying"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_on_storage_read_back() {
        let sda = || Some(StorageError::Device("sda".to_owned()));
        for (line, error) in [
            ("blk_update_request: I/O error, dev sda, sector 123", sda()),
            ("print_req_error: critical medium error, dev sda, sector 123 op 0x0:(READ)", sda()),
            (
                "Buffer I/O error on device sda1, logical block 7",
                Some(StorageError::Device("sda1".to_owned())),
            ),
            ("sd 0:0:0:0: [sda] tag#0 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE", sda()),
            (
                "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen",
                Some(StorageError::Device("ata1".to_owned())),
            ),
            ("nfs: server nas1 not responding, still trying", Some(StorageError::Server("nas1".to_owned()))),
            ("I/O error, dev /etc/passwd, sector 1", None),
            ("sd 0:0:0:0: [sda] 1953525168 512-byte logical blocks", None),
        ] {
            assert_eq!(StorageError::of(line), error, "{line}");
            if let Some(error) = error {
                assert_eq!(StorageError::of(&error.to_string()), Some(error));
            }
        }
    }
}
