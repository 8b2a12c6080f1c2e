"""What the commands share: options, progress, tables of claims, complaints."""
