//! A bound on the time that reading may take: [`Deadline`].

use std::time::{Duration, Instant};

use super::{Holder, ReadError, Source};

/// Reads files from another source until a deadline, and none after it.
#[derive(Debug)]
pub struct Deadline<S> {
    inner: S,
    until: Instant,
}

impl<S: Source> Deadline<S> {
    /// Reads from `inner` until `until`.
    pub fn new(inner: S, until: Instant) -> Self {
        Deadline { inner, until }
    }

    fn check(&self) -> Result<(), ReadError> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(ReadError::Io("not read: the time set aside was used up".to_owned())),
        }
    }
}

impl<S: Source> Source for Deadline<S> {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        buffer.clear();
        self.check()?;
        self.inner.read(path, limit, buffer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        self.check()?;
        self.inner.list(directory)
    }

    fn unlinked(&self, holders: &[Holder], budget: Duration, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        buffer.clear();
        self.check()?;
        let left = self.until.saturating_duration_since(Instant::now());
        self.inner.unlinked(holders, budget.min(left), buffer)
    }

    fn is_live(&self) -> bool {
        self.inner.is_live()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySource;

    #[test]
    fn nothing_is_read_after_the_deadline() {
        let mut files = MemorySource::default();
        files.insert("proc/meminfo", "MemTotal: 1 kB\n");
        let mut buffer = Vec::new();
        let open = Deadline::new(files.clone(), Instant::now() + Duration::from_secs(3600));
        assert_eq!(open.read("proc/meminfo", 100, &mut buffer), Ok(false));
        let over = Deadline::new(files, Instant::now());
        assert!(matches!(over.read("proc/meminfo", 100, &mut buffer), Err(ReadError::Io(_))));
        assert!(matches!(over.list("proc"), Err(ReadError::Io(_))));
    }
}
