//! IO towards replicas: connections, scraping, probing.
