//! Settings of who is let in.

use clap::Args;
use clap::builder::BoolishValueParser;

/// Who is let in.
#[derive(Debug, Clone, Args)]
pub struct AccessSettings {
    /// Let everybody who reaches the server do everything while there are no tokens, also beyond this machine.
    #[arg(long, env = "REFRAIN_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,
}
