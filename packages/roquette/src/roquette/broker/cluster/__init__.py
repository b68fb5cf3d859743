"""The broker among others: name servers, masters, addresses."""
