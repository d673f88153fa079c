//! `exec`: a real command.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::repeat::{Repeat, once};
use super::{Instance, Kind, Refusal, Site, thread};
use crate::op::{CommandId, Op};
use crate::program::CommandSpec;
use crate::quantity::Time;

/// A program of the host, such as a backup or a dump, as it is.
///
/// One execution is one request, and its latency is the time that it took; one that fails is an error. It is
/// no shell's line: `["sh", "-c", "…"]` is one. Only `lotsfree lab` on this host executes it, and only with
/// `--allow-exec`; the model refuses it. It runs without root's rights, in a directory of its own that is
/// removed afterwards, with nothing of the lab's environment. It and all processes that it starts end with
/// the run. CPU time and page faults are those of all of them; the rest of the time counts as I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Exec {
    /// The program and its arguments: an absolute path, or a name that is in `/usr/bin` and the like.
    pub command: Vec<String>,
    /// The user that it runs as, by name or number, but not root; somebody whom no file belongs to if left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// How often it is executed.
    #[serde(default = "once")]
    pub times: u32,
    /// Pause after each execution.
    #[serde(default)]
    pub pause: Time,
}

/// Most arguments.
const ARGUMENTS: usize = 1000;

impl Kind for Exec {
    const ROLES: &'static [&'static str] = &["command"];
    const EXECUTES: bool = true;

    fn build(&self, site: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        let refuse = |why: String| Err(Refusal::new("command", why));
        match self.command.first() {
            None => return refuse("is empty; it must name a program".to_owned()),
            Some(program) if program.is_empty() || (program.contains('/') && !program.starts_with('/')) => {
                return refuse(format!("names {program:?}; it must be a name, or a path from / on"));
            }
            Some(_) if self.command.len() > ARGUMENTS => {
                return refuse(format!("has {} words; it may have {ARGUMENTS}", self.command.len()));
            }
            Some(_) => {}
        }
        if let Some(word) = self.command.iter().find(|word| word.contains('\0')) {
            return refuse(format!("has a null byte in {word:?}; no word can have one"));
        }
        if let Some(user) = self.user.as_deref().filter(|user| matches!(*user, "" | "0" | "root")) {
            return Err(Refusal::new("user", format!("is {user:?}; it must be another user than root")));
        }
        let command = CommandId(site.commands.len() as u32);
        let stream = Repeat::new(Op::Exec { command }, self.times, self.pause)?;
        site.commands.push(CommandSpec { words: self.command.clone(), user: self.user.clone() });
        Ok(Instance::only(vec![thread("command", &[], stream)]))
    }
}
