//! The kernel's `taskstats` (`include/uapi/linux/taskstats.h`, `Documentation/accounting/taskstats.rst`):
//! what tasks spent and waited for, asked over generic netlink, or told when they end.

use std::io;
use std::thread;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable, NlaBuffer, NlasIterator, ParseableParametrized,
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
    /// `blkio`, since 2.6.18.
    pub(crate) blocks: u64,
    /// `swapin`, since 2.6.18. Up to 5.16 all waits for pages to be swapped in, which are not in `blocks`;
    /// from 5.17 on only reading them, without the wait, which is.
    pub(crate) swap_in: u64,
    /// `freepages`: direct reclaim, since 2.6.28.
    pub(crate) reclaim: u64,
    /// `thrashing`: waits for pages of the working set, since 4.20; of files, and from 6.1 on of swap, too.
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
    /// Its times; `None` of a process that ends with several threads, for which the kernel adds up delays
    /// alone (`kernel/taskstats.c:fill_tgid_exit`).
    pub(crate) times: Option<Times>,
    /// How often it waited for blocks; 0 if its delays are not counted.
    pub(crate) block_waits: u64,
    pub(crate) delay: Delay,
}

impl Account {
    /// Reads a `struct taskstats`. Fields that the kernel does not have yet are behind its end.
    fn read(id: u32, is_process: bool, stats: &[u8]) -> Self {
        let bytes = |at: usize, length: usize| stats.get(at..at + length);
        let u64_at = |at| bytes(at, 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
        Account {
            id,
            is_process,
            times: (!is_process).then(|| Times {
                user: u64_at(152).saturating_mul(1000),
                system: u64_at(160).saturating_mul(1000),
                runnable: u64_at(24),
                minor_faults: u64_at(168),
                major_faults: u64_at(176),
            }),
            block_waits: u64_at(32),
            delay: Delay {
                blocks: u64_at(40),
                swap_in: u64_at(56),
                reclaim: u64_at(320),
                thrashing: u64_at(336),
                compaction: u64_at(360),
            },
        }
    }
}

/// The version of 6.14, which has its fields elsewhere: it was corrected with the next
/// (`include/uapi/linux/taskstats.h:TASKSTATS_VERSION`).
const MISPLACED: u16 = 15;
/// The first version in which `swapin` leaves the wait out.
const SWAP_IN_IN_BLOCKS: u16 = 11;

/// A connection to `taskstats`.
pub(crate) struct Taskstats {
    socket: Socket,
    /// Where the kernel tells of tasks that end, if it does.
    ends: Option<Socket>,
    family: u16,
    /// The version of the kernel's `struct taskstats`.
    version: u16,
}

impl std::fmt::Debug for Taskstats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Taskstats { family, version, .. } = self;
        f.debug_struct("Taskstats").field("family", family).field("version", version).finish_non_exhaustive()
    }
}

impl Taskstats {
    /// Connects, and asks to be told of all tasks that end on these CPUs.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no `taskstats`, `EPERM` without `CAP_NET_ADMIN`, `EINVAL` for a version
    /// that cannot be read.
    pub(crate) fn connect(cpus: &[u32]) -> io::Result<Self> {
        let socket = open()?;
        let family = family(&socket)?;
        let mut taskstats = Taskstats { socket, ends: None, family, version: 0 };
        let answer = taskstats.ask(std::process::id())?;
        taskstats.version = version(&answer).map_err(io::Error::other)?.unwrap_or(0);
        if taskstats.version == 0 || taskstats.version == MISPLACED {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // In a container the kernel tells nobody.
        taskstats.ends = listen(family, cpus).ok();
        Ok(taskstats)
    }

    /// Whether the kernel tells of tasks that end.
    pub(crate) fn tells_ends(&self) -> bool {
        self.ends.is_some()
    }

    /// Whether waits for pages to be swapped in are among the waits for blocks.
    pub(crate) fn has_swap_in_in_blocks(&self) -> bool {
        self.version >= SWAP_IN_IN_BLOCKS
    }

    /// What the threads of a process waited for so far; `None` if there is no such process.
    pub(crate) fn process(&self, id: u32) -> Option<Account> {
        let answer = self.ask(id).ok()?;
        accounts(&answer).ok()?.into_iter().find(|account| account.id == id && account.is_process)
    }

    fn ask(&self, process: u32) -> io::Result<Vec<u8>> {
        let id = DefaultNla::new(TASKSTATS_CMD_ATTR_TGID, process.to_ne_bytes().to_vec());
        send(&self.socket, Taskstats::get(self.family, id), 0)?;
        // The kernel answers before `send` returns.
        Ok(receive(&self.socket)?)
    }

    /// The tasks that ended, and the processes whose last thread did, since this was last asked; and whether
    /// there was no room for others.
    pub(crate) fn ended(&self) -> (Vec<Account>, bool) {
        let (mut ended, mut is_lost) = (Vec::new(), false);
        let Some(socket) = &self.ends else { return (ended, is_lost) };
        loop {
            match receive(socket) {
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

/// Asks to be told of the tasks that end on these CPUs.
///
/// # Errors
/// `EINVAL` outside of the first user and PID namespace; `EPERM`; if nothing is told, as in another network
/// namespace.
fn listen(family: u16, cpus: &[u32]) -> io::Result<Socket> {
    let socket = open()?;
    set_socket_recv_buffer_size_force(&socket, ROOM)?;
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let mask = DefaultNla::new(TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, (cpus.join(",") + "\0").into_bytes());
    send(&socket, Taskstats::get(family, mask), NLM_F_ACK)?;
    let answer = receive(&socket)?;
    let answer = NetlinkMessage::<GenlMessage<Message>>::deserialize(&answer).map_err(io::Error::other)?;
    if let NetlinkPayload::Error(error) = answer.payload
        && error.code.is_some()
    {
        return Err(error.to_io());
    }
    // A thread tells before one can join it (`kernel/exit.c:do_exit`).
    let _ = thread::Builder::new().spawn(|| ())?.join();
    match receive(&socket) {
        Ok(_) => Ok(socket),
        Err(error) => Err(error.into()),
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
    send(socket, NetlinkMessage::from(GenlMessage::from_payload(request)), 0)?;
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

fn send<M>(socket: &Socket, mut message: NetlinkMessage<M>, flags: u16) -> io::Result<()>
where
    M: NetlinkSerializable,
{
    message.header.flags = NLM_F_REQUEST | flags;
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
    let all = stats(message)?;
    Ok(all.iter().map(|(id, is_process, stats)| Account::read(*id, *is_process, stats)).collect())
}

/// The version that an answer has.
fn version(message: &[u8]) -> Result<Option<u16>, DecodeError> {
    let all = stats(message)?;
    let version = all.first().and_then(|(_, _, stats)| stats.get(..2)?.try_into().ok());
    Ok(version.map(u16::from_ne_bytes))
}

/// The `struct taskstats` in a message, each with the id that it is of and whether that is a process.
fn stats(message: &[u8]) -> Result<Vec<(u32, bool, Vec<u8>)>, DecodeError> {
    let message = NetlinkMessage::<GenlMessage<Message>>::deserialize(message)?;
    let NetlinkPayload::InnerMessage(message) = message.payload else { return Ok(Vec::new()) };
    message.payload.attributes.iter().filter_map(|attribute| stats_in(attribute).transpose()).collect()
}

/// The one in an attribute, if there is one.
fn stats_in(attribute: &DefaultNla) -> Result<Option<(u32, bool, Vec<u8>)>, DecodeError> {
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
    Ok(Some((id, is_process, stats)))
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

    /// Root's test: others are refused, and so is root in a container.
    #[test]
    fn the_kernel_tells_of_this_process_and_of_threads_that_end() {
        let cpus = crate::facts::cpus();
        let Ok(taskstats) = Taskstats::connect(&cpus) else { return };
        let own = std::process::id();
        assert_eq!(taskstats.process(own).map(|account| account.id), Some(own));
        assert_eq!(taskstats.process(u32::MAX >> 1), None);
        if !taskstats.tells_ends() {
            return;
        }
        let spin = || {
            let began = lotsfree_sys::thread_cpu_time();
            while (lotsfree_sys::thread_cpu_time() - began).as_millis() < 60 {}
            rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
        };
        let thread = thread::spawn(spin).join().unwrap();
        let (ended, _) = taskstats.ended();
        let times = ended.iter().find(|account| account.id == thread).and_then(|account| account.times);
        let spent = times.map(|times| (times.user + times.system) / 1_000_000);
        assert!(spent.is_some_and(|ms| (50..10_000).contains(&ms)), "{ended:?}");
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
