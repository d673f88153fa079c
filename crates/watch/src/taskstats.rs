//! The kernel's `taskstats` (`include/uapi/linux/taskstats.h`, `Documentation/accounting/taskstats.rst`): what
//! tasks spent and waited for, asked over generic netlink, or told when they end.

use std::io;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlaBuffer, NlasIterator, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::tasks::Times;

/// Bytes of records of ended tasks that may wait to be read; one takes about 2000 in the kernel.
const ROOM: usize = 4 << 20;
/// Bytes of the longest message: two accounts, of 560 bytes each in 6.18.
const LONGEST: usize = 16 << 10;

// Commands and attributes of requests.
const TASKSTATS_CMD_GET: u8 = 1;
const TASKSTATS_CMD_ATTR_TGID: u16 = 2;
const TASKSTATS_CMD_ATTR_REGISTER_CPUMASK: u16 = 3;
// Attributes of answers.
const TASKSTATS_TYPE_PID: u16 = 1;
const TASKSTATS_TYPE_TGID: u16 = 2;
const TASKSTATS_TYPE_STATS: u16 = 3;
const TASKSTATS_TYPE_AGGR_PID: u16 = 4;
const TASKSTATS_TYPE_AGGR_TGID: u16 = 5;

/// What the threads of a process waited for since they began, by the kernel's delay accounting, in
/// nanoseconds. None of what the kernel is too old to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delay {
    /// `blkio` without swap-in, since 2.6.18.
    pub(crate) blocks: u64,
    /// `swapin`, since 2.6.18.
    pub(crate) swap_in: u64,
    /// `freepages`: direct reclaim, since 2.6.28.
    pub(crate) reclaim: u64,
    /// `thrashing`: waits for pages of the working set, of files and swapped out, since 4.20.
    pub(crate) thrashing: u64,
    /// `compact`: direct compaction, since 5.17.
    pub(crate) compaction: u64,
}

impl Delay {
    /// What was waited after `before`.
    pub(crate) fn since(&self, before: &Delay) -> Delay {
        self.each(before, u64::saturating_sub)
    }

    /// The longer of each.
    pub(crate) fn max(&self, other: &Delay) -> Delay {
        self.each(other, u64::max)
    }

    fn each(&self, other: &Delay, of: impl Fn(u64, u64) -> u64) -> Delay {
        Delay {
            blocks: of(self.blocks, other.blocks),
            swap_in: of(self.swap_in, other.swap_in),
            reclaim: of(self.reclaim, other.reclaim),
            thrashing: of(self.thrashing, other.thrashing),
            compaction: of(self.compaction, other.compaction),
        }
    }
}

/// What is known of a task or of all threads of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its id.
    pub(crate) id: u32,
    /// Whether it is a process: all threads of it.
    pub(crate) is_process: bool,
    /// Its parent; 0 where the kernel does not say.
    pub(crate) parent: u32,
    /// Its name; empty where the kernel does not say.
    pub(crate) name: String,
    pub(crate) times: Times,
    /// How often it waited for blocks; 0 if its delays are not counted.
    pub(crate) block_waits: u64,
    pub(crate) delay: Delay,
}

impl Account {
    /// Reads a `struct taskstats`. Fields that the kernel does not have yet are behind its end.
    fn read(id: u32, is_process: bool, stats: &[u8]) -> Self {
        let bytes = |at: usize, length: usize| stats.get(at..at + length);
        let known = |at| bytes(at, 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        let u64_at = |at| known(at).unwrap_or(0);
        let u32_at = |at| bytes(at, 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let name = bytes(80, 32).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
        let (blkio, swap_in, compaction) = (u64_at(40), u64_at(56), known(360));
        Account {
            id,
            is_process,
            parent: u32_at(132),
            name: String::from_utf8_lossy(name).into_owned(),
            times: Times {
                user: u64_at(152).saturating_mul(1000),
                system: u64_at(160).saturating_mul(1000),
                runnable: u64_at(24),
                minor_faults: u64_at(168),
                major_faults: u64_at(176),
            },
            block_waits: u64_at(32),
            delay: Delay {
                // Since 5.17, when `compact` came, waits for swap-in are in both.
                blocks: if compaction.is_some() { blkio.saturating_sub(swap_in) } else { blkio },
                swap_in,
                reclaim: u64_at(320),
                thrashing: u64_at(336),
                compaction: compaction.unwrap_or(0),
            },
        }
    }
}

/// A connection to `taskstats`.
pub(crate) struct Taskstats {
    socket: Socket,
    /// Where the kernel tells of tasks that end.
    ends: Socket,
    family: u16,
}

impl std::fmt::Debug for Taskstats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taskstats").field("family", &self.family).finish_non_exhaustive()
    }
}

impl Taskstats {
    /// Connects, and asks to be told of all tasks that end on these CPUs.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no `taskstats`, `EPERM` without `CAP_NET_ADMIN`.
    pub(crate) fn connect(cpus: &[u32]) -> io::Result<Self> {
        let (socket, ends) = (open()?, open()?);
        let family = family(&socket)?;
        set_socket_recv_buffer_size_force(&ends, ROOM)?;
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let mask = DefaultNla::new(TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, (cpus.join(",") + "\0").into_bytes());
        send(&ends, Taskstats::get(family, mask))?;
        Ok(Taskstats { socket, ends, family })
    }

    /// What the threads of a process spent and waited for so far; `None` if there is no such process.
    pub(crate) fn process(&self, id: u32) -> Option<Account> {
        let id_of_process = DefaultNla::new(TASKSTATS_CMD_ATTR_TGID, id.to_ne_bytes().to_vec());
        send(&self.socket, Taskstats::get(self.family, id_of_process)).ok()?;
        // The kernel answers before `send` returns.
        let answer = receive(&self.socket).ok()?;
        accounts(&answer).ok()?.into_iter().find(|account| account.id == id && account.is_process)
    }

    /// The tasks that ended, and the processes whose last thread did, since this was last asked; and whether
    /// there was no room for others.
    pub(crate) fn ended(&self) -> (Vec<Account>, bool) {
        let (mut ended, mut is_lost) = (Vec::new(), false);
        loop {
            match receive(&self.ends) {
                // What is not understood is no account: the answer to the request.
                Ok(message) => ended.extend(accounts(&message).unwrap_or_default()),
                Err(Errno::NOBUFS) => is_lost = true,
                Err(Errno::INTR) => {}
                Err(_) => return (ended, is_lost),
            }
        }
    }

    fn get(family: u16, attribute: DefaultNla) -> NetlinkMessage<GenlMessage<Message>> {
        let message = Message { command: TASKSTATS_CMD_GET, attributes: vec![attribute] };
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(family);
        NetlinkMessage::from(message)
    }
}

/// A message of the family: its attributes, or what is in them where they are answers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        "TASKSTATS"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(payload: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let owned =
            |attribute: NlaBuffer<&[u8]>| DefaultNla::new(attribute.kind(), attribute.value().to_vec());
        let attributes = NlasIterator::new(payload).map(|attribute| attribute.map(owned));
        Ok(Message { command: header.cmd, attributes: attributes.collect::<Result<_, _>>()? })
    }
}

fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// The number that this kernel gave the family.
fn family(socket: &Socket) -> io::Result<u16> {
    let name = GenlCtrlAttrs::FamilyName(Message::family_name().to_owned());
    let request = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![name] };
    send(socket, NetlinkMessage::from(GenlMessage::from_payload(request)))?;
    let answer = receive(socket)?;
    let answer = NetlinkMessage::<GenlMessage<GenlCtrl>>::deserialize(&answer).map_err(io::Error::other)?;
    let attributes = match answer.payload {
        NetlinkPayload::InnerMessage(message) => message.payload.nlas,
        NetlinkPayload::Error(error) => return Err(error.to_io()),
        _ => Vec::new(),
    };
    let number = attributes.into_iter().find_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(number) => Some(number),
        _ => None,
    });
    number.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn send<M>(socket: &Socket, mut message: NetlinkMessage<M>) -> io::Result<()>
where
    M: NetlinkSerializable,
{
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0).map(|_| ())
}

fn receive(socket: &Socket) -> Result<Vec<u8>, Errno> {
    let mut message = Vec::with_capacity(LONGEST);
    socket.recv(&mut message, 0).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(message)
}

/// The accounts in a message.
fn accounts(message: &[u8]) -> Result<Vec<Account>, DecodeError> {
    let message = NetlinkMessage::<GenlMessage<Message>>::deserialize(message)?;
    let NetlinkPayload::InnerMessage(message) = message.payload else { return Ok(Vec::new()) };
    message.payload.attributes.iter().filter_map(|attribute| account(attribute).transpose()).collect()
}

/// The account in an attribute, if it is one.
fn account(attribute: &DefaultNla) -> Result<Option<Account>, DecodeError> {
    use netlink_packet_core::Nla as _;
    let is_process = match attribute.kind() {
        TASKSTATS_TYPE_AGGR_PID => false,
        TASKSTATS_TYPE_AGGR_TGID => true,
        _ => return Ok(None),
    };
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    let (mut id, mut stats) = (0, Vec::new());
    for part in NlasIterator::new(&value) {
        let part = part?;
        match part.kind() {
            TASKSTATS_TYPE_PID | TASKSTATS_TYPE_TGID => {
                id = part.value().try_into().map(u32::from_ne_bytes).unwrap_or_default();
            }
            TASKSTATS_TYPE_STATS => stats = part.value().to_vec(),
            _ => {}
        }
    }
    Ok(Some(Account::read(id, is_process, &stats)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with the account of a process as the kernel sends it.
    fn message(stats: &[u8]) -> Vec<u8> {
        let parts = [
            DefaultNla::new(TASKSTATS_TYPE_TGID, 7u32.to_ne_bytes().to_vec()),
            DefaultNla::new(TASKSTATS_TYPE_STATS, stats.to_vec()),
        ];
        let mut value = vec![0; parts.as_slice().buffer_len()];
        parts.as_slice().emit(&mut value);
        let attributes = vec![DefaultNla::new(TASKSTATS_TYPE_AGGR_TGID, value)];
        let mut message = GenlMessage::from_payload(Message { command: 2, attributes });
        message.set_resolved_family_id(0x1f);
        let mut message = NetlinkMessage::from(message);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn a_kernel_that_does_not_count_something_yet_says_nothing_of_it() {
        let mut stats = vec![0; 328];
        stats.get_mut(56..64).unwrap().copy_from_slice(&5u64.to_ne_bytes());
        stats.get_mut(40..48).unwrap().copy_from_slice(&7u64.to_ne_bytes());
        stats.get_mut(320..328).unwrap().copy_from_slice(&6u64.to_ne_bytes());
        let accounts = accounts(&message(&stats)).unwrap();
        let delay = Delay { blocks: 7, swap_in: 5, reclaim: 6, ..Delay::default() };
        assert_eq!(
            accounts.iter().map(|account| (account.id, account.delay)).collect::<Vec<_>>(),
            [(7, delay)]
        );
    }

    #[test]
    fn a_message_that_is_cut_off_is_an_error_or_nothing() {
        let whole = message(&[1; 560]);
        for length in 0..whole.len() {
            let cut = whole.get(..length).unwrap();
            assert!(accounts(cut).map_or(true, |accounts| accounts.is_empty()), "{length}");
        }
    }
}
