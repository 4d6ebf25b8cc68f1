//! What a child process is told by its environment.

use crate::fault;
use tokio::process::Command;

/// Takes away what only the service is told: its settings, among which are secrets, and what clients of Postgres read. A child
/// reads files of others; whoever makes it do something else is not to find the way to the database.
pub(super) fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let of_service = name.to_str().is_some_and(|name| {
            (name.starts_with("REFRAIN_") && name != fault::VARIABLE)
                || name.starts_with("PG")
                || name == "DATABASE_URL"
        });
        if of_service {
            command.env_remove(name);
        }
    }
    command
}
