"""What makes a local stack secure: certificates, passwords, rights, and the settings that ask for them."""
