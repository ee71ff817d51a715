"""From files to findings: discovery, the rules on one document, a run over many."""
