//! [`Monitor`]: controls a running QEMU by its [machine
//! protocol](https://www.qemu.org/docs/master/interop/qmp-spec.html).

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Disk, Error};

/// Time to wait for an answer: QEMU answers at once, or never.
const LIMIT: Duration = Duration::from_secs(30);

/// The most bytes of an answer; real ones have some hundred.
const LINE: u64 = 1 << 20;

/// A connection to the monitor of a running QEMU.
#[derive(Debug)]
pub(crate) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Exchanges greetings with the QEMU at the other end.
    pub(crate) fn new(stream: UnixStream) -> Result<Monitor, Error> {
        stream.set_read_timeout(Some(LIMIT)).map_err(Error::io("QEMU's monitor"))?;
        let mut monitor = Monitor(BufReader::new(stream));
        // QEMU sends its greeting, and then expects `qmp_capabilities`.
        monitor.line()?;
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Limits a disk to the rates of its throttle.
    pub(crate) fn throttle(&mut self, disk: &Disk) -> Result<(), Error> {
        let throttle = &disk.throttle;
        let arguments = json!({
            "device": disk.name,
            "bps": throttle.bandwidth.0, "bps_rd": 0, "bps_wr": 0,
            "iops": throttle.iops.unwrap_or(0), "iops_rd": 0, "iops_wr": 0,
        });
        self.execute("block_set_io_throttle", arguments)
    }

    fn execute(&mut self, command: &str, arguments: Value) -> Result<(), Error> {
        let text = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.0.get_mut().write_all(text.as_bytes()).map_err(Error::io("QEMU's monitor"))?;
        loop {
            let answer = self.line()?;
            if answer.get("return").is_some() {
                return Ok(());
            }
            if let Some(error) = answer.get("error") {
                return Err(Error::Monitor { command: command.to_owned(), answer: error.to_string() });
            }
            // Any other message is an event, and is passed over.
        }
    }

    fn line(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        let mut bounded = (&mut self.0).take(LINE);
        let read = bounded.read_line(&mut line).map_err(Error::io("QEMU's monitor"))?;
        if read == 0 {
            return Err(Error::io("QEMU's monitor")(ErrorKind::UnexpectedEof.into()));
        }
        let answer = serde_json::from_str(&line);
        answer.map_err(|error| Error::io("QEMU's monitor")(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_units::Bytes;

    use super::super::Throttle;
    use super::*;

    #[test]
    fn events_are_passed_over_and_errors_reported() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let said = b"{\"QMP\": {}}\n{\"return\": {}}\n{\"event\": \"RESUME\"}\n{\"return\": {}}\n\
                     {\"error\": {\"class\": \"GenericError\", \"desc\": \"no disk\"}}\n";
        theirs.write_all(said).expect("written");
        let mut monitor = Monitor::new(ours).expect("greeted");
        let throttle = Throttle { bandwidth: Bytes(7), iops: None };
        let disk = Disk { name: "disk", files: None, swap: None, throttle };
        monitor.throttle(&disk).expect("done");
        let error = monitor.throttle(&disk).unwrap_err().to_string();
        assert!(error.contains("block_set_io_throttle") && error.contains("no disk"), "{error}");
        drop(monitor);
        let lines: Vec<String> = BufReader::new(theirs).lines().map(|line| line.expect("text")).collect();
        assert!(lines[0].contains("qmp_capabilities"), "{lines:?}");
        let arguments: Value = serde_json::from_str(&lines[1]).expect("JSON");
        assert_eq!(arguments["arguments"]["bps"], 7);
        assert_eq!(arguments["arguments"]["iops"], 0);
        assert_eq!(arguments["arguments"]["device"], "disk");
    }
}
