//! The commands of a case: who executes them on this host, and where.

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_changes::Changes;
use lotsfree_storage::{create_dir, share_dir};
use lotsfree_sys::User;
use lotsfree_workload::{CommandSpec, Program};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, at};
use crate::vm;

/// Where the programs of a name are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command that an agent executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// The number of the user that executes it, that of the group, and those of the other groups.
    pub(crate) user: (u32, u32, Vec<u32>),
    /// The directory that it begins in, which belongs to the user.
    pub(crate) directory: PathBuf,
    /// All of its environment.
    pub(crate) environment: Vec<(String, String)>,
}

/// Why a command cannot be executed here.
type Reason = String;

/// An account of `/etc/passwd`.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    name: String,
    user: u32,
    group: u32,
    home: String,
}

/// Somebody who executes a command.
struct Executor {
    /// `None`: a number that no account has.
    account: Option<Account>,
    user: User,
}

/// What the commands of a program are, and as whom they run, for whoever has to allow it; or why one cannot
/// be executed.
pub(crate) fn announced(program: &Program) -> Vec<Result<String, Reason>> {
    let of = |command: &CommandSpec| {
        let executor = executor(command.user.as_deref())?;
        let whom = match executor.account {
            Some(account) => format!("{} ({})", account.name, account.user),
            None => format!("{}, whom nothing belongs to", executor.user.user),
        };
        Ok(format!("execute {} as user {whom}", shown(&command.words)))
    };
    program.commands.iter().map(of).collect()
}

/// A command as somebody would type it, with control characters made visible.
pub(crate) fn shown(words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+=:,%@".contains(c))
    };
    let quoted = |word: &String| match plain(word) {
        true => word.clone(),
        false => {
            let visible = |c: char| match c {
                '\'' => r"'\''".to_owned(),
                c if c.is_control() => c.escape_default().to_string(),
                c => c.to_string(),
            };
            format!("'{}'", word.chars().map(visible).collect::<String>())
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Makes the directories of a program's commands, which their users own.
///
/// # Errors
/// If a user is unknown, or a directory cannot be made.
pub(crate) fn prepare(
    program: &Program,
    parent: &Path,
    changes: &mut Changes,
) -> Result<Vec<Exec>, LabError> {
    let mut commands = Vec::new();
    for CommandSpec { words, user } in &program.commands {
        let Executor { account, user } = executor(user.as_deref()).map_err(LabError::Refused)?;
        // The outer directory stays root's, as only what is ours is removed; others may pass through it.
        let outer = changes.directory(parent, "exec")?;
        share_dir(&outer, 0o711, None).map_err(at(&outer))?;
        let directory = outer.join("work");
        create_dir(&directory).map_err(at(&directory))?;
        // The agent, which enters it before it becomes the user, has no rights beyond anybody's there.
        share_dir(&directory, 0o711, Some((user.user, user.group))).map_err(at(&directory))?;
        let own = directory.display().to_string();
        let mut environment = vec![
            ("PATH".to_owned(), PATH.to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TMPDIR".to_owned(), own.clone()),
            ("HOME".to_owned(), account.as_ref().map_or(own, |account| account.home.clone())),
        ];
        if let Some(account) = account {
            environment.push(("USER".to_owned(), account.name.clone()));
            environment.push(("LOGNAME".to_owned(), account.name));
        }
        commands.push(Exec {
            words: words.clone(),
            user: (user.user, user.group, user.groups),
            directory,
            environment,
        });
    }
    Ok(commands)
}

/// The executor that a scenario names; without a name somebody whom nothing belongs to.
fn executor(name: Option<&str>) -> Result<Executor, Reason> {
    let Some(name) = name else {
        let user = vm::user::unassigned().ok_or("this user cannot become another one to execute commands")?;
        return Ok(Executor { account: None, user });
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    find(name, &read("/etc/passwd"), &read("/etc/group"))
}

fn find(name: &str, accounts: &str, groups: &str) -> Result<Executor, Reason> {
    let number: Option<u32> = name.parse().ok();
    let account = accounts
        .lines()
        .filter_map(parse)
        .find(|account| number.map_or(account.name == name, |number| account.user == number));
    let Some(account) = account else {
        return Err(format!("no user {name:?} is in /etc/passwd; write one that is, or none"));
    };
    if account.user == 0 {
        return Err(format!("user {name:?} is root; write another user"));
    }
    // NAME:PASSWORD:NUMBER:MEMBER,MEMBER
    let member = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let number = fields.next()?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == account.name).then_some(number)
    };
    let user = User {
        user: account.user,
        group: account.group,
        groups: groups.lines().filter_map(member).collect(),
    };
    Ok(Executor { account: Some(account), user })
}

/// A line of `/etc/passwd`: NAME:PASSWORD:USER:GROUP:COMMENT:HOME:SHELL.
fn parse(line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    Some(Account {
        name: (*fields.first()?).to_owned(),
        user: fields.get(2)?.parse().ok()?,
        group: fields.get(3)?.parse().ok()?,
        home: (*fields.get(5)?).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: &str =
        "root:x:0:0:root:/root:/bin/bash\npostgres:x:105:110::/var/lib/postgresql:/bin/sh\nbad\n";
    const GROUPS: &str = "ssl-cert:x:111:postgres,www\nroot:x:0:\nadm:x:4:www\n";

    #[test]
    fn a_user_is_found_by_name_and_number_with_its_groups() {
        for name in ["postgres", "105"] {
            let executor = find(name, ACCOUNTS, GROUPS).ok().unwrap();
            assert_eq!(executor.user, User { user: 105, group: 110, groups: vec![111] });
            assert_eq!(executor.account.unwrap().home, "/var/lib/postgresql");
        }
    }

    #[test]
    fn root_and_strangers_are_refused() {
        let why = |name| find(name, ACCOUNTS, GROUPS).err().unwrap();
        assert_eq!(why("mysql"), "no user \"mysql\" is in /etc/passwd; write one that is, or none");
        assert_eq!(why("00"), "user \"00\" is root; write another user");
    }

    #[test]
    fn a_command_is_shown_so_that_it_can_be_typed_and_hides_nothing() {
        let words = |words: &[&str]| shown(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["dd", "if=/dev/zero", "bs=1M"]), "dd if=/dev/zero bs=1M");
        assert_eq!(words(&["sh", "-c", "echo $HOME; ls"]), "sh -c 'echo $HOME; ls'");
        assert_eq!(words(&["a", "", "\u{1b}[2J"]), r"a '' '\u{1b}[2J'");
    }
}
