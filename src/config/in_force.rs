//! What is in force and where it comes from, for `refrain config`.

use crate::fault;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// What all variables of the environment begin with.
const PREFIX: &str = "REFRAIN_";

/// The settings of a verb, as they are.
#[derive(Debug, Serialize)]
pub struct InForce {
    /// In the order of the help.
    pub settings: Vec<Setting>,
    /// Variables of the environment that look like settings and are none, sorted.
    pub unknown: Vec<String>,
}

/// One setting.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The flag, e.g. `--workers`.
    pub flag: String,
    /// The variable of the environment that stands for it.
    pub variable: String,
    /// Its value as text, several ones by commas; none where nothing is set. A secret is not shown.
    pub value: Option<String>,
    /// Where the value comes from.
    pub from: Origin,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// Nobody said anything else.
    Default,
}

/// What `matches`, those of the program's `verb`, say of each of its settings. `variables` are the names in the environment.
pub fn in_force(
    mut program: Command,
    verb: &str,
    matches: &ArgMatches,
    variables: impl Iterator<Item = String>,
) -> InForce {
    // So that the verb has the flags of the program too.
    program.build();
    let settings =
        program.find_subcommand(verb).map(|verb| verb.get_arguments().filter_map(|arg| setting(arg, matches)));
    InForce { settings: settings.into_iter().flatten().collect(), unknown: unknown_variables(&program, variables) }
}

/// Which of these names in the environment look like settings and are none of the program's.
pub fn unknown_variables(program: &Command, variables: impl Iterator<Item = String>) -> Vec<String> {
    let verbs = std::iter::once(program).chain(program.get_subcommands());
    let known: BTreeSet<String> = verbs.flat_map(Command::get_arguments).filter_map(variable).collect();
    let is_unknown = |name: &String| name.starts_with(PREFIX) && !known.contains(name) && name != fault::VARIABLE;
    variables.filter(is_unknown).collect::<BTreeSet<_>>().into_iter().collect()
}

fn setting(arg: &Arg, matches: &ArgMatches) -> Option<Setting> {
    let (flag, variable) = (format!("--{}", arg.get_long()?), variable(arg)?);
    let id = arg.get_id().as_str();
    let from = match matches.value_source(id) {
        Some(ValueSource::CommandLine) => Origin::Flag,
        Some(ValueSource::EnvVariable) => Origin::Environment,
        _ => Origin::Default,
    };
    let shown = |values: clap::parser::RawValues<'_>| match arg.is_hide_env_values_set() {
        true => "(set, not shown)".to_owned(),
        false => values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(","),
    };
    Some(Setting { flag, variable, value: matches.get_raw(id).map(shown), from })
}

fn variable(arg: &Arg) -> Option<String> {
    arg.get_env().map(|name| name.to_string_lossy().into_owned())
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |of: &dyn Fn(&Setting) -> &str| self.settings.iter().map(|s| of(s).chars().count()).max();
        let value = |setting: &Setting| setting.value.clone().unwrap_or_else(|| "not set".to_owned());
        let flags = widest(&|setting| &setting.flag).unwrap_or(0);
        let values = self.settings.iter().map(|s| value(s).chars().count()).max().unwrap_or(0);
        for setting in &self.settings {
            let from = match setting.from {
                Origin::Flag => "the flag",
                Origin::Environment => setting.variable.as_str(),
                Origin::Default => "",
            };
            let line = format!("{:flags$}  {:values$}  {from}", setting.flag, value(setting));
            writeln!(f, "{}", line.trim_end())?;
        }
        for name in &self.unknown {
            writeln!(f, "{name} is set and is no setting, expected a variable that `refrain serve --help` names")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::Settings;
    use super::*;
    use clap::{CommandFactory, FromArgMatches, Parser};

    #[derive(Parser)]
    enum Program {
        Serve(Box<Settings>),
    }

    fn shown(args: &[&str]) -> InForce {
        let matches = Program::command().get_matches_from([&["refrain", "serve"], args].concat());
        Program::from_arg_matches(&matches).unwrap();
        let variables = ["REFRAIN_WORKER", "REFRAIN_WORKERS", "REFRAIN_FAULT", "HOME"].map(str::to_owned);
        in_force(Program::command(), "serve", matches.subcommand_matches("serve").unwrap(), variables.into_iter())
    }

    #[test]
    fn each_setting_says_where_it_comes_from() {
        let found = shown(&["--workers", "3", "--source-hosts", "a.example,b.example:81"]);
        let of = |flag: &str| {
            let setting = found.settings.iter().find(|s| s.flag == flag).unwrap();
            (setting.value.clone(), setting.from)
        };
        assert_eq!(of("--workers"), (Some("3".to_owned()), Origin::Flag));
        assert_eq!(of("--lease-seconds"), (Some("30".to_owned()), Origin::Default));
        assert_eq!(of("--engine-memory-mb"), (None, Origin::Default));
        assert_eq!(of("--source-hosts"), (Some("a.example,b.example:81".to_owned()), Origin::Flag));
        assert_eq!(found.unknown, ["REFRAIN_WORKER"]);
        let text = found.to_string();
        assert!(text.lines().any(|line| line.starts_with("--workers ") && line.ends_with("the flag")), "{text}");
        assert!(text.contains("REFRAIN_WORKER is set and is no setting"), "{text}");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let found = shown(&["--database-url", "postgres://u:hunter2@h/d"]);
        let text = format!("{found}{}", serde_json::to_string(&found).unwrap());
        assert!(!text.contains("hunter2") && text.contains("(set, not shown)"), "{text}");
    }
}
