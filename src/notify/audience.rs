//! Who is told of the runs that a server accepts.

use super::AllowedHosts;
use crate::run::Audience;

/// What a server is told of it.
#[derive(Debug, Clone, Default)]
pub struct Audiences {
    /// Where webhooks may go to; none where this server has no secret to sign them with.
    hosts: Option<AllowedHosts>,
    /// The URLs that are told of every run's end.
    of_every_run: Vec<String>,
    /// Whether attempts are told as lineage.
    lineage: bool,
}

impl Audiences {
    /// `of_every_run` are told of each run's end. Errors are in words that name the URL by its number, since its query may be a
    /// secret.
    pub fn new(hosts: Option<AllowedHosts>, of_every_run: &[&str], lineage: bool) -> Result<Self, String> {
        let mut audiences = Self { hosts, of_every_run: Vec::new(), lineage };
        for (at, url) in of_every_run.iter().enumerate() {
            let url = audiences.url(url).map_err(|why| format!("URL {} of --webhook-url: {why}", at + 1))?;
            audiences.of_every_run.push(url);
        }
        Ok(audiences)
    }

    /// Who is told of a run, whose request may name a URL of its own; or why that one may not be told.
    pub fn of(&self, asked: Option<&str>) -> Result<Audience, String> {
        let mut webhooks = self.of_every_run.clone();
        if let Some(url) = asked.map(|asked| self.url(asked)).transpose()?
            && !webhooks.contains(&url)
        {
            webhooks.push(url);
        }
        Ok(Audience { webhooks, lineage: self.lineage })
    }

    fn url(&self, text: &str) -> Result<String, String> {
        let Some(hosts) = &self.hosts else {
            return Err("found a webhook, expected none: the server has no secret to sign it with \
                        (--webhook-secret-file)"
                .to_owned());
        };
        hosts.url(text).map(String::from).map_err(|refused| refused.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_url_is_told_once() {
        let hosts = AllowedHosts::parse(&["hooks.example.org".to_owned()]).unwrap();
        let audiences = Audiences::new(Some(hosts), &["https://hooks.example.org/all"], true).unwrap();
        let told = |asked| audiences.of(asked).unwrap().webhooks;
        assert_eq!(told(None), ["https://hooks.example.org/all"]);
        assert_eq!(told(Some("HTTPS://hooks.example.org:443/all")), ["https://hooks.example.org/all"]);
        assert_eq!(told(Some("https://hooks.example.org/b")).len(), 2);
        assert!(audiences.of(None).unwrap().lineage);
        assert!(audiences.of(Some("https://other.example.org/")).is_err());
    }

    #[test]
    fn without_a_secret_there_are_no_webhooks() {
        let none = Audiences::default();
        assert!(none.of(None).unwrap().is_nobody());
        assert!(none.of(Some("https://hooks.example.org/")).unwrap_err().contains("--webhook-secret-file"));
        let error = Audiences::new(None, &["https://hooks.example.org/?key=hunter2"], false).unwrap_err();
        assert!(error.starts_with("URL 1 of --webhook-url: ") && !error.contains("hunter2"), "{error}");
    }
}
