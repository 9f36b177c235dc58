"""What a group consumed once, twice and never, counted after its moves."""
