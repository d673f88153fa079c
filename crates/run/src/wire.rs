//! Transfer of a run from one process to another: records of the journal, and texts between them.
//!
//! A [`Sender`] is a [`Sink`] over a byte stream (a pipe, a serial line). A [`Receiver`] reads the other end
//! of the stream, however that is cut into pieces. Each record has its length and a checksum, so a damaged
//! stream is refused at the damaged record.

use std::io::Write;
use std::path::PathBuf;

use crate::journal::{self, Contents, Encoder, LONGEST};
use crate::{Event, Interval, Sample, Sink, WriteError};

/// Sends a run.
#[derive(Debug)]
pub struct Sender<W> {
    out: W,
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl<W: Write> Sender<W> {
    /// Makes a sender over a stream.
    pub fn new(out: W) -> Self {
        Sender { out, encoder: Encoder::default(), buffer: Vec::new() }
    }

    /// Sends a text between the rows, whose meaning the two ends agree on.
    ///
    /// # Errors
    /// The stream's.
    pub fn text(&mut self, text: &str) -> Result<(), WriteError> {
        Encoder::text(text, &mut self.buffer);
        self.send()
    }

    fn send(&mut self) -> Result<(), WriteError> {
        let sent = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        self.buffer.clear();
        sent.map_err(|error| WriteError::Io { path: PathBuf::from("(stream)"), error })
    }
}

impl<W: Write> Sink for Sender<W> {
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.encoder.sample(sample, &mut self.buffer);
        self.send()
    }

    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError> {
        Encoder::intervals(intervals, &mut self.buffer);
        self.send()
    }

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        Encoder::event(event, &mut self.buffer);
        self.send()
    }
}

/// A message that arrives.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// [`Sender::text`]
    Text(String),
    /// [`Sink::sample`]
    Sample(Box<Sample>),
    /// [`Sink::intervals`]
    Intervals(Vec<Interval>),
    /// [`Sink::event`]
    Event(Event),
}

impl Message {
    /// Passes rows on to a sink, and returns a text.
    ///
    /// # Errors
    /// The sink's.
    pub fn pass(self, sink: &mut dyn Sink) -> Result<Option<String>, WriteError> {
        match self {
            Message::Text(text) => return Ok(Some(text)),
            Message::Sample(sample) => sink.sample(&sample)?,
            Message::Intervals(intervals) => sink.intervals(&intervals)?,
            Message::Event(event) => sink.event(&event)?,
        }
        Ok(None)
    }
}

/// Why a stream cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record at byte {at} is damaged")]
pub struct Damaged {
    /// Bytes of the stream before the record.
    pub at: u64,
}

/// Receives a run.
#[derive(Debug, Default)]
pub struct Receiver {
    pending: Vec<u8>,
    /// Bytes of the stream before `pending`.
    at: u64,
    contents: Contents,
    /// The last values of the columns.
    last: Vec<u64>,
}

impl Receiver {
    /// Takes the next bytes of the stream and returns the messages that they complete.
    ///
    /// # Errors
    /// At the first record that is damaged. Messages before it were returned by earlier calls, or are lost
    /// with this one.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Message>, Damaged> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        let mut messages = Vec::new();
        loop {
            let damaged = Damaged { at: self.at + (pending.len() - rest.len()) as u64 };
            match rest.first_chunk() {
                Some(length) if u32::from_le_bytes(*length) as usize > LONGEST => return Err(damaged),
                Some(length) if rest.len() >= 8 + u32::from_le_bytes(*length) as usize => {}
                _ => break,
            }
            let (payload, after) = journal::next(rest).ok_or(damaged)?;
            messages.extend(self.message(payload).ok_or(damaged)?);
            rest = after;
        }
        self.at += (pending.len() - rest.len()) as u64;
        self.pending = rest.to_vec();
        Ok(messages)
    }

    /// Whether the stream is in the middle of a record.
    pub fn is_torn(&self) -> bool {
        !self.pending.is_empty()
    }

    fn message(&mut self, payload: &[u8]) -> Option<Option<Message>> {
        let contents = &mut self.contents;
        if let Some(text) = journal::as_text(payload) {
            return Some(Some(Message::Text(text?.to_owned())));
        }
        contents.add(payload, &mut self.last)?;
        if let Some(event) = contents.events.pop() {
            contents.forget_sizes();
            return Some(Some(Message::Event(event)));
        }
        if !contents.intervals.is_empty() {
            let intervals = std::mem::take(&mut contents.intervals);
            contents.forget_sizes();
            return Some(Some(Message::Intervals(intervals.iter().collect())));
        }
        let sample = contents.samples.get(0).map(|sample| Message::Sample(Box::new(sample)));
        contents.samples.clear();
        contents.forget_sizes();
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventKind, StageMemory};
    use lotsfree_kernel_files::counters::vmstat;

    fn sample(at: u64, free: u64) -> Sample {
        let mut sample = Sample { at, ..Sample::default() };
        sample.vmstat.set(vmstat::nr_free_pages, free);
        sample
    }

    #[test]
    fn whatever_the_pieces_the_messages_are_the_same() {
        let memory = Some(StageMemory { size: 40, resident: 30 });
        let event = Event { faults: Some(3), memory, ..Event::new(7, EventKind::Mark, "ready", None) };
        let interval = Interval {
            from: 0,
            at: 9,
            actor: "a".into(),
            role: "r".into(),
            operations: 3,
            errors: 0,
            latency: crate::Histogram::default(),
            spent: crate::Spent::default(),
            major_faults: 1,
            minor_faults: 2,
            toll: crate::Toll::default(),
        };
        let mut bytes = Vec::new();
        let mut sender = Sender::new(&mut bytes);
        sender.text("hello").unwrap();
        sender.sample(&sample(0, 10)).unwrap();
        sender.event(&event).unwrap();
        sender.sample(&sample(9, 5)).unwrap();
        sender.intervals(std::slice::from_ref(&interval)).unwrap();
        let expected = [
            Message::Text("hello".to_owned()),
            Message::Sample(Box::new(sample(0, 10))),
            Message::Event(event),
            Message::Sample(Box::new(sample(9, 5))),
            Message::Intervals(vec![interval]),
        ];
        for piece in [1, 3, 17, bytes.len()] {
            let mut receiver = Receiver::default();
            let messages: Vec<Message> =
                bytes.chunks(piece).flat_map(|piece| receiver.feed(piece).unwrap()).collect();
            assert_eq!(messages, expected);
            assert!(!receiver.is_torn());
        }
    }

    #[test]
    fn damage_is_found_where_it_is() {
        let mut bytes = Vec::new();
        let mut sender = Sender::new(&mut bytes);
        sender.text("one").unwrap();
        let second = {
            sender.text("two").unwrap();
            bytes.len() / 2
        };
        bytes[second + 9] ^= 1;
        let mut receiver = Receiver::default();
        assert_eq!(receiver.feed(&bytes), Err(Damaged { at: second as u64 }));
        assert_eq!(Receiver::default().feed(&[0xff; 16]), Err(Damaged { at: 0 }));
    }
}
